"""Turns tinyshakespeare.txt into tokens, one a character: data/train (the first nine tenths) and data/check, each with
its vocabulary."""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def main() -> None:
    text = (HERE / "tinyshakespeare.txt").read_text()
    characters = "".join(sorted(set(text)))
    number = {character: index for index, character in enumerate(characters)}
    tokens = np.array([number[character] for character in text], dtype=np.uint16)
    cut = len(tokens) * 9 // 10
    for name, part in (("train", tokens[:cut]), ("check", tokens[cut:])):
        directory = HERE / "data" / name
        directory.mkdir(parents=True, exist_ok=True)
        part.astype("<u2").tofile(directory / "tokens.bin")
        (directory / "tokens.json").write_text('{"dtype": "uint16"}\n')
        (directory / "vocabulary.json").write_text(json.dumps({"characters": characters}) + "\n")
        print(f"{directory}: {len(part)} characters, {len(characters)} different ones")


if __name__ == "__main__":
    main()
