"""Atomic writes: a file or folder is complete, or what was there before."""

import os
from pathlib import Path

import pytest

from tnn._files import atomic_path, check_folder, check_name, check_writable, is_special, write_text


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_file_is_complete_or_as_it_was(tmp_path, monkeypatch):
    write_text(tmp_path / "part", "old")

    def fill_the_disk(path, data, encoding):
        with path.open("w") as file:
            file.write(data[:1])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", fill_the_disk)
        with pytest.raises(OSError, match="No space left"):
            write_text(tmp_path / "part", "new")
    assert contents(tmp_path) == {"part": "old"}
    write_text(tmp_path / "part", "né\n")
    assert (tmp_path / "part").read_bytes() == "né\n".encode()
    assert list(contents(tmp_path)) == ["part"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_folder_is_complete_or_absent(tmp_path, error):
    def write():
        with atomic_path(tmp_path / "folder") as temporary:
            temporary.mkdir()
            (temporary / "a").write_text("a")
            if broken:
                raise error

    broken = True
    with pytest.raises(error):
        write()
    assert list(tmp_path.iterdir()) == []
    broken = False
    write()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert contents(tmp_path / "folder") == {"a": "a"}


def test_an_empty_folder_is_replaced_and_a_full_one_is_not(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        (temporary / "a").write_text("first")
    with pytest.raises(OSError, match="not empty"), atomic_path(folder) as temporary:
        temporary.mkdir()
    assert contents(folder) == {"a": "first"}
    assert list(tmp_path.iterdir()) == [folder]


def test_a_fifo_is_written_to(tmp_path):
    """As a device is; not tried with one, which an error here would replace for the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "complete")
    assert os.read(reader, 100) == b"complete"
    os.close(reader)
    assert pipe.is_fifo()
    assert is_special(pipe)
    assert is_special(Path("/dev/null"))


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "a", Path("/proc/a"), Path("/proc/a/b")):
        with pytest.raises(OSError, match=f"{path} cannot be written"):
            check_writable(path)
    with pytest.raises(NotADirectoryError, match="file is not a folder"):
        check_folder(tmp_path / "file")
    check_folder(tmp_path / "new" / "one")
    check_writable(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_names_for_libraries():
    check_name(Path("a/né\n"))
    with pytest.raises(ValueError, match="cannot be written: its name is not valid UTF-8"):
        check_name(Path(os.fsdecode(b"a/\xff")))
