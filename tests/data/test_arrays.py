"""Images as arrays: the files of CIFAR-10, MNIST and numpy, compressed or not, complete or damaged."""

import gzip
import lzma
import os
import pickle
import struct
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data.arrays import holds_arrays, load_arrays

RNG = np.random.default_rng(0)
CIFAR = [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]


def some_images(count, shape):
    return RNG.integers(0, 256, (count, *shape), np.uint8), RNG.integers(0, 10, count)


def python2_pickle(images, labels):
    """The pickle of a batch, opcode by opcode as Python 2 and numpy 1 wrote it: all strings are bytes."""

    def string(text):
        return b"U" + bytes([len(text)]) + text

    def number(value):
        return b"J" + struct.pack("<i", value)

    pixels = images.transpose(0, 3, 1, 2).tobytes()
    reconstruct = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + number(0) + b"\x85" + string(b"b") + b"tR"
    )
    dtype = b"cnumpy\ndtype\n(" + string(b"u1") + number(0) + number(1) + b"tR"
    dtype += b"(" + number(3) + string(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    shape = number(len(images)) + number(3072) + b"\x86"
    array = reconstruct + b"(" + number(1) + shape + dtype + b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    rows = b"](" + b"".join(number(int(label)) for label in labels) + b"e"
    batch = b"}(" + string(b"batch_label") + string(b"one") + string(b"labels") + rows + string(b"data") + array + b"u"
    return b"\x80\x02" + batch + b"."


def new_pickle(images, labels, protocol=4, order="C"):
    data = np.asarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1), order=order)
    return pickle.dumps({"data": data, "labels": labels.tolist()}, protocol=protocol)


def binary(images, labels):
    return np.c_[labels.astype(np.uint8), images.transpose(0, 3, 1, 2).reshape(len(images), -1)].tobytes()


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_cifar(folder, encode, suffix=""):
    folder.mkdir(exist_ok=True)
    parts = [some_images(2, (32, 32, 3)) for _ in CIFAR]
    for name, part in zip(CIFAR, parts, strict=True):
        (folder / f"{name}{suffix}").write_bytes(encode(*part))
    train = [np.concatenate(column) for column in zip(*parts[:5], strict=True)]
    return {"train": train, "test": parts[5]}


def write_mnist(folder):
    parts = {"train": some_images(6, (5, 4)), "test": some_images(3, (5, 4))}
    for split, name in ("train", "train"), ("test", "t10k"):
        images, labels = parts[split]
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(labels.astype(np.uint8)))
    return parts


def write_npy(folder, shape=(5, 4)):
    parts = {"train": some_images(6, shape), "test": some_images(3, shape)}
    for split, (images, labels) in parts.items():
        np.save(folder / f"x_{split}.npy", images)
        np.save(folder / f"y_{split}.npy", labels)
    return parts


def check(loaded, expected):
    assert list(loaded) == ["train", "test"]
    for split, (images, labels) in expected.items():
        assert loaded[split].images.dtype == np.uint8
        assert loaded[split].labels.dtype == np.int64
        assert np.array_equal(loaded[split].images, images)
        assert np.array_equal(loaded[split].labels, labels)


@pytest.mark.parametrize("sub_folder", ["", "cifar-10-batches-py"])
@pytest.mark.parametrize("encode", [python2_pickle, new_pickle])
def test_cifar_python(tmp_path, sub_folder, encode):
    expected = write_cifar(tmp_path / sub_folder, encode)
    check(load_arrays(tmp_path), expected)


def test_the_pickles_are_those_of_python_2():
    images, labels = some_images(2, (32, 32, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, about the old name and the old dtype
        batch = pickle.loads(python2_pickle(images, labels), encoding="bytes")
    assert batch[b"labels"] == labels.tolist()
    assert np.array_equal(batch[b"data"], images.transpose(0, 3, 1, 2).reshape(2, -1))


def test_an_array_stored_by_columns(tmp_path):
    expected = write_cifar(tmp_path, lambda *part: new_pickle(*part, order="F"))
    check(load_arrays(tmp_path), expected)


@pytest.mark.parametrize("sub_folder", ["", "cifar-10-batches-bin"])
def test_cifar_binary(tmp_path, sub_folder):
    expected = write_cifar(tmp_path / sub_folder, binary, ".bin")
    check(load_arrays(tmp_path), expected)


def test_mnist(tmp_path):
    expected = write_mnist(tmp_path)
    check(load_arrays(tmp_path), expected)


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
def test_npy(tmp_path, shape):
    expected = write_npy(tmp_path, shape)
    check(load_arrays(tmp_path), expected)


def test_npy_with_axes_of_one(tmp_path):
    parts = write_npy(tmp_path)
    for split, (images, labels) in parts.items():
        np.save(tmp_path / f"x_{split}.npy", images[..., None])
        np.save(tmp_path / f"y_{split}.npy", labels[:, None].astype(np.uint8))
    check(load_arrays(tmp_path), parts)


@pytest.mark.parametrize(("suffix", "compress"), [(".xz", lzma.compress), (".gz", gzip.compress)])
@pytest.mark.parametrize("write", [write_mnist, write_npy, lambda folder: write_cifar(folder, python2_pickle)])
def test_compressed_files(tmp_path, write, suffix, compress):
    expected = write(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.with_name(path.name + suffix).write_bytes(compress(path.read_bytes()))
        path.unlink()
    assert holds_arrays(tmp_path)
    check(load_arrays(tmp_path), expected)


# --- what is refused


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_malicious_pickle_does_nothing(tmp_path, protocol):
    images, labels = some_images(2, (32, 32, 3))
    batch = {"data": images.reshape(2, -1), "labels": labels.tolist(), "more": Malicious(tmp_path / "trace")}
    write_cifar(tmp_path, new_pickle)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps(batch, protocol=protocol))
    with pytest.raises(ValueError, match=r"data_batch_3 is not a batch of CIFAR-10: UnpicklingError: it names "):
        load_arrays(tmp_path)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("name", ["builtins eval", "numpy load", "numpy.core.multiarray scalar", "_codecs encode"])
def test_a_pickle_may_name_only_arrays(tmp_path, name):
    module, function = name.split()
    write_cifar(tmp_path, new_pickle)
    (tmp_path / "test_batch").write_bytes(f"c{module}\n{function}\n(S'1'\ntR.".encode())
    with pytest.raises(ValueError, match=rf"it names {module}\.{function}"):
        load_arrays(tmp_path)


def test_an_npy_of_objects_is_refused(tmp_path):
    write_npy(tmp_path)
    np.save(tmp_path / "y_test.npy", np.array([Malicious(tmp_path / "trace")] * 3), allow_pickle=True)
    with pytest.raises(ValueError, match=r"y_test\.npy is not a numeric .npy array"):
        load_arrays(tmp_path)
    assert not (tmp_path / "trace").exists()


@given(data=st.binary(max_size=60))
def test_any_bytes_give_a_clear_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cifar")
    (folder / "data_batch_1").write_bytes(data)
    for name in CIFAR[1:]:
        (folder / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"data_batch_1 (is not a batch|must hold)"):
        load_arrays(folder)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("train-images-idx3-ubyte", b"", "is not an idx file of uint8: it begins with nothing"),
        ("train-images-idx3-ubyte", b"\0\0\x0d\3", "is not an idx file of uint8: it begins with 00 00 0d 03"),
        ("train-images-idx3-ubyte", idx(np.zeros((6, 5, 4), np.uint8))[:-1], "must have 120 values, .*; got 119"),
        (
            "train-images-idx3-ubyte",
            idx(np.zeros((6, 20), np.uint8)),
            r"images must be uint8 of .*; got uint8 of shape",
        ),
        ("train-images-idx3-ubyte", idx(np.zeros((0, 5, 4), np.uint8)), r"not empty; got uint8 of shape \(0, 5, 4\)"),
        (
            "train-labels-idx1-ubyte",
            idx(np.zeros(5, np.uint8)),
            r"one integer label for each of 6 images; got .* \(5,\)",
        ),
    ],
)
def test_damaged_idx_files(tmp_path, name, data, message):
    write_mnist(tmp_path)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name}:? .*{message}"):
        load_arrays(tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x_test", np.zeros((3, 5, 4)), r"images must be uint8 .*; got float64 of shape \(3, 5, 4\)"),
        ("x_test", np.zeros((3, 5, 4, 2), np.uint8), r"got uint8 of shape \(3, 5, 4, 2\)"),
        ("y_test", np.zeros(3), r"one integer label for each of 3 images; got float64"),
        ("y_test", np.array([0, -1, 2]), r"labels must be from 0 to 99999; got -1"),
    ],
)
def test_wrong_arrays(tmp_path, name, array, message):
    write_npy(tmp_path)
    np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(ValueError, match=rf"{name}\.npy: .*{message}"):
        load_arrays(tmp_path)


def test_a_binary_batch_cut_short(tmp_path):
    write_cifar(tmp_path, binary, ".bin")
    path = tmp_path / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_2\.bin must have a multiple of 3073 bytes .*; got 6145"):
        load_arrays(tmp_path)


def test_missing_files(tmp_path):
    assert not holds_arrays(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no images as arrays: there is none of data_batch_1, .*x_train"):
        load_arrays(tmp_path)
    write_npy(tmp_path)
    (tmp_path / "y_test.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*y_test\.npy, although .* holds other files"):
        load_arrays(tmp_path)


def npy_header(text):
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    ("content", "message"),
    {
        "a zip": (b"PK\x03\x04" + bytes(100), "the magic string is not correct"),
        "784 TB": (
            npy_header("{'descr': '|u1', 'fortran_order': False, 'shape': (784000000000000,), }"),
            r"uint8 of shape \(784000000000000,\) has 784000000000000 bytes; the file has 0 after its header",
        ),
        "one byte too many": (
            npy_header("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }") + bytes(3),
            r"uint8 of shape \(2,\) has 2 bytes; the file has 3",
        ),
        "objects": (
            npy_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + bytes(8),
            "object of shape",
        ),
        "a cut header": (npy_header("{'descr': '|u1', 'fortran_order': (("), ""),
        "version 9": (b"\x93NUMPY\x09\x00" + bytes(100), "9"),
    }.values(),
)
def test_npy_files_that_are_not_what_they_claim(tmp_path, content, message):
    write_npy(tmp_path)
    (tmp_path / "y_train.npy").write_bytes(content)
    with pytest.raises(ValueError, match=rf"^[^\n]*y_train\.npy is not a numeric \.npy array: .*{message}[^\n]*$"):
        load_arrays(tmp_path)


@pytest.mark.parametrize("label", [100_000, 10**9, 2**62])
def test_a_label_that_no_model_has_outputs_for(tmp_path, label):
    write_npy(tmp_path)
    labels = np.load(tmp_path / "y_train.npy")
    labels[-1] = label
    np.save(tmp_path / "y_train.npy", labels)
    with pytest.raises(ValueError, match=rf"y_train\.npy: labels must be from 0 to 99999; got {label}"):
        load_arrays(tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (bytes([0, 0, 8, 4]) + struct.pack(">4I", 2**16, 2**16, 2**16, 2**16), f"must have {2**64} values"),
        (bytes([0, 0, 8, 255]), "ends within its header"),
    ],
)
def test_idx_files_that_claim_too_much(tmp_path, header, message):
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / name).write_bytes(header)
    with pytest.raises(ValueError, match=message):
        load_arrays(tmp_path)
