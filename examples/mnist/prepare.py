"""Turns MNIST's idx files under data/ into the arrays that `tesser train` reads: data/train (8,500 images) and
data/check (1,500).

The 10,000 images are MNIST's test set. Its first half is easier than its second, so of every twenty images the first
three are held back to check.
"""

import gzip
import struct
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"


def read_idx(path: Path) -> np.ndarray:
    """The uint8 array of an idx file: two zero bytes, element type 8, number of dimensions, big-endian sizes,
    elements."""
    content = gzip.decompress(path.read_bytes())
    zero, element_type, dimensions = struct.unpack_from(">HBB", content)
    if zero != 0 or element_type != 8:
        raise SystemExit(f"{path}: not an idx file of bytes; restore it from the repository")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def main() -> None:
    images = read_idx(DATA / "mnist-t10k-images-idx3-ubyte.gz")[:, None]
    labels = read_idx(DATA / "mnist-t10k-labels-idx1-ubyte.gz").astype(np.int64)
    held_back = np.arange(len(images)) % 20 < 3
    for name, chosen in (("train", ~held_back), ("check", held_back)):
        directory = DATA / name
        directory.mkdir(exist_ok=True)
        np.save(directory / "images.npy", images[chosen])
        np.save(directory / "labels.npy", labels[chosen])
        print(f"{directory}: {chosen.sum()} images")


if __name__ == "__main__":
    main()
