"""The JSON Schema of manifests says what the reader says.

Manifests are sent to the reader as JSON, which is YAML as well; so only one side's idea of a scalar counts.
"""

import copy
import json
import random
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.python.commands import binary

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs/formats/manifest.schema.json").read_text())
READER = binary().parent / "read_manifests"

# What a schema cannot say. The reader may refuse for these reasons what the schema takes, and for no others.
BEYOND_THE_SCHEMA = (
    "times 'replicas' is",
    "but no data store has the id",
    "a second data store has the id",
    "is not followed by a name",  # ${...
    "a secret is either its value or",
    "stands here as well",
    "a secret must stand on one line",
    "expected 1.0 MiB to",  # amounts in text
    "expected 64.0 KiB to",
    "expected an amount of memory",
    "expected 1 to 31622400 seconds",
    "expected 0 to 3600 seconds",
    "expected a number from 0.001",
    "expected a time such as",
)

MINIMAL = {"name": "a", "command": "x"}
FULL = {
    "name": "resnet-50",
    "description": "all images",
    "team": "vision",
    "command": ["python", "train.py", 3, True],
    "learners": 4,
    "cpus": 2.5,
    "memory": "24GiB",
    "accelerators": {"nvidia.com/gpu": 2},
    "priority": 80,
    "environment": {"A": 1, "B": "${B}", "C": {"secret": "open sesame"}},
    "data_stores": [
        {"id": "images", "type": "host", "path": "/data"},
        {"id": "s", "type": "s3", "bucket": "abc", "endpoint": "http://[::1]:9000", "region": "eu-1", "prefix": "p/"},
        {"id": "t", "type": "s3", "bucket": "abc", "access_key": "${X}", "secret_key": "${Y}"},
    ],
    "results": "s/runs",
    "checkpoints": {"keep": 5},
    "restarts": 0,
    "time_limit": "1d 2h",
    "start_limit": 90,
    "grace": "0s",
    "log_limit": 1000000,
    "metrics": [
        {"type": "regex", "pattern": "loss (?<loss>.*)"},
        {"type": "json"},
        {"type": "json", "path": "m.jsonl"},
        {"type": "tensorboard", "path": "runs"},
        {"type": "tesser"},
    ],
}
PROGRAM = {
    "name": "mnist",
    "program": "mnist.tesser",
    "data": "data/train",
    "workers": 2,
    "replicas": 2,
    "preset": "tofu",
    "arguments": ["--epochs", 3],
    "checkpoints": {"every": 100},
}
VALUES = [
    *[
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        2.0,
        0.5,
        100,
        101,
        10**6,
        2**40,
        2**60,
        1e300,
        "",
        "a",
        "A",
        "-",
        "a-",
        "x" * 41,
    ],
    *[
        "..",
        "a/..",
        "/a",
        "a/../b",
        "...",
        "a..b",
        "2GiB",
        "2 GiB",
        "2  GiB",
        "2G",
        "2Gi",
        "2.5MB",
        "2.MB",
        ".5MB",
        "2X",
    ],
    *[
        "5",
        "500m",
        "m",
        "1h",
        "1h30m",
        "30m1h",
        "1h1h",
        " 1h",
        "1h ",
        "1 h",
        "1.5h",
        "${A}",
        "${1}",
        "a${",
        "$${",
        "zero\0",
    ],
    *[
        "host",
        "s3",
        "regex",
        "json",
        "tensorboard",
        "https://h",
        "https://",
        "ftp://h",
        "https://h/p",
        "(?<a>b)",
        "(?P<a>b)",
    ],
    *[
        "abc",
        "ab",
        "a.c",
        "ä",
        "a b",
        "a_b",
        "a.b",
        "a\nb",
        [],
        ["a"],
        [""],
        [[]],
        [None],
        [1],
        {},
        {"a": 1},
        {"a": "b"},
    ],
    *[{"secret": "a"}, {"secret": 1}, {"secret": ""}, {"keep": 2}, {"every": 2}, {"keep": 0}, {"v100": 1}, {"1": "2"}],
    *[{"a-b": "c"}, {"TESSER_LEARNER": "x"}, {"A": {}}, {"A": {"secret": "x", "b": 1}}],
]
KEYS = [*SCHEMA["properties"], "memmory", "", "id", "type", "path", "pattern", "secret", "bucket", "access_key", "keep"]


def changed(document, generator):
    """The document with one to three members replaced, added or taken away, at any depth."""
    document = json.loads(json.dumps(document))
    for _ in range(generator.randint(1, 3)):
        place = document
        while True:
            inner = [
                v for v in (place.values() if isinstance(place, dict) else place) if isinstance(v, dict | list) and v
            ]
            if not inner or generator.random() < 0.5:
                break
            place = generator.choice(inner)
        value = copy.deepcopy(generator.choice(VALUES))
        if isinstance(place, list):
            place[generator.randrange(len(place))] = value
        elif generator.random() < 0.3:
            place.pop(generator.choice(list(place)), None)
        else:
            place[generator.choice(list(place) if generator.random() < 0.6 and place else KEYS)] = value
        if not document:
            break
    return document


def reader_says(documents):
    # Control characters but the zero byte would be escapes that both sides read alike.
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in documents)
    result = subprocess.run([READER], input=lines, capture_output=True, text=True, check=True, timeout=60)
    answers = result.stdout.splitlines()
    assert len(answers) == len(documents)
    return answers


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("document", [MINIMAL, FULL, PROGRAM], ids=["minimal", "full", "program"])
def test_both_take_what_is_right(document):
    jsonschema.validate(document, SCHEMA)
    assert reader_says([document]) == ["ok"]


def test_every_key_of_the_schema_is_used_here():
    assert set(SCHEMA["properties"]) == set(FULL) | set(PROGRAM)


def test_reader_and_schema_agree_over_many_manifests():
    seed = 20191129
    generator = random.Random(seed)
    documents = [changed(generator.choice([MINIMAL, FULL, PROGRAM]), generator) for _ in range(6000)]
    # Each value under each key alone, so that no other mistake hides what is said of it.
    for base in (MINIMAL, PROGRAM):
        documents += [{**base, key: value} for key in SCHEMA["properties"] for value in VALUES]
    validator = jsonschema.Draft202012Validator(SCHEMA)
    taken = refused = beyond = 0
    for document, answer in zip(documents, reader_says(documents), strict=True):
        if answer == "ok":
            taken += 1
            assert validator.is_valid(document), f"only the reader takes {json.dumps(document)}"
        elif validator.is_valid(document):
            beyond += 1
            assert any(reason in answer for reason in BEYOND_THE_SCHEMA), f"{json.dumps(document)}: {answer}"
        else:
            refused += 1
    # The test would say nothing if it met one kind alone.
    assert min(taken, refused, beyond) > 50, (taken, refused, beyond)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/job.yaml")), ids=lambda path: path.parent.name)
def test_examples_are_taken_by_both(path):
    document = yaml.safe_load(path.read_text())
    jsonschema.validate(document, SCHEMA)
    assert reader_says([document]) == ["ok"]
