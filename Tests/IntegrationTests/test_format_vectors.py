"""The published vectors of the formats, for Python and Go. Swift's own tests read the same file."""

import json
from pathlib import Path

import pytest

import logs
from verifiers import verify
from log_fixtures import folder, go, in_base64  # noqa: F401

VECTORS = Path(__file__).parents[1] / "Vectors"


@pytest.fixture(scope="module")
def vector():
    return json.loads((VECTORS / "ledger.json").read_text())


def hashes(texts):
    return [bytes.fromhex(text) for text in texts]


def test_vectors_of_the_tree(vector, go):
    leaves = [b"leaf-%d" % number for number in range(3)]
    tree = logs.Tree(leaves)
    assert [verify.leaf_hash(leaf) for leaf in leaves] == hashes(vector["leaves"])
    roots = [bytes.fromhex(root["hex"]) for root in vector["roots"]]
    for size, root in enumerate(roots, 1):
        assert verify.root_of(hashes(vector["leaves"])[:size]) == tree.root(size) == root
        assert go("root", size) == (str(size), vector["roots"][size - 1]["base64"])
    for index, path in enumerate(map(hashes, vector["inclusion"])):
        assert tree.inclusion(index) == path
        assert verify.climb(verify.leaf_hash(leaves[index]), index, 3, path) == roots[2]
    for old, path in vector["consistency"].items():
        assert tree.consistency(int(old)) == hashes(path)
        words = [in_base64(part) for part in hashes(path)]
        assert go("consist", old, in_base64(roots[int(old) - 1]), 3, in_base64(roots[2]), *words) == ("3", in_base64(roots[2]))
    assert verify.root_of([]) == tree.root(0)


def test_vectors_of_the_files(vector, go, tmp_path):
    key = logs.Key("audit.example/log1", bytes.fromhex(vector["seed"]))
    witness = logs.Key("witness.example/w1", bytes.fromhex(vector["witness"]["seed"]), 4)
    assert (key.vkey, witness.vkey) == (vector["vkey"], vector["witness"]["vkey"])
    assert logs.checkpoint(logs.Tree(), key).decode() == vector["emptyCheckpoint"]
    log = logs.make(tmp_path, [[b"leaf-0", b"leaf-1", b"leaf-2"]], key=key, policies=())
    note = logs.checkpoint(log.tree, key, witness, time=vector["witness"]["time"])
    assert note.decode() == vector["checkpoint"]
    assert logs.proof(log.tree, 1, b"leaf-1", note).decode().replace("extra bGVhZi0x\n", "") == vector["proof"]
    assert (tmp_path / "tile/entries/000.p/3").read_bytes().hex() == vector["bundle"]
    (tmp_path / "checkpoint").write_bytes(note)
    root = bytes.fromhex(vector["roots"][2]["hex"])
    policy = f"log {key.vkey}\nwitness w1 {witness.vkey}\nquorum w1\n"
    for asked in (None, policy, "quorum none\n"):
        assert verify.checkpoint("vector", note, key.vkey, asked) == (3, root)
    assert verify.checkpoint("vector", vector["emptyCheckpoint"].encode(), key.vkey) == (0, verify.root_of([]))
    assert go("tree", tmp_path, key.vkey) == ("3", vector["roots"][2]["base64"])
    for index, path in enumerate(vector["inclusion"]):
        assert go("include", tmp_path, key.vkey, index, *map(in_base64, hashes(path))) == ("3", in_base64(root))


def test_the_root_of_70000_leaves(vector, go):
    leaves = [verify.leaf_hash(b"leaf-%d" % number) for number in range(70_000)]
    root = bytes.fromhex(vector["root70000"])
    assert verify.root_of(leaves) == root
    assert go("root", 70_000) == ("70000", in_base64(root))


def test_every_proof_of_small_trees(go, tmp_path):
    """Python and Go accept each right proof, and none with a step left out, changed or added."""
    for size in (1, 2, 3, 4, 5, 7, 8, 9, 31, 33):
        tree = logs.Tree([b"%d" % number for number in range(size)])
        root = tree.root()
        for index in range(size):
            leaf, path = logs.leaf_hash(b"%d" % index), tree.inclusion(index)
            assert verify.climb(leaf, index, size, path) == root
            wrong = [path[:step] + path[step + 1:] for step in range(len(path))] + [path + [root], [root] + path]
            wrong += [path[:step] + [bytes(32)] + path[step + 1:] for step in range(len(path))]
            for other in wrong:
                assert verify.climb(leaf, index, size, other) != root
        for old in range(1, size):
            path = [in_base64(part) for part in tree.consistency(old)]
            heads = old, in_base64(tree.root(old)), size, in_base64(root)
            assert go("consist", *heads, *path) == (str(size), in_base64(root))
            for step in range(len(path)):
                assert isinstance(go("consist", *heads, *path[:step], *path[step + 1:]), str)
