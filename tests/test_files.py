"""Atomic writes: a file or folder is complete, or what was there before."""

import pytest

from tnn._files import atomic_path, write_text


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
