"""The tree of RFC 9162: against the RFC's own recursive definition, for every small tree. Rule ids: TREE-n."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_saga.audit import tree

LEAVES = [tree.leaf_hash(b"leaf %d" % number) for number in range(33)]


def defined(leaves):
    """MTH(D_n), word for word from section 2.1.1, over leaf hashes."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + defined(leaves[:k]) + defined(leaves[k:])).digest()


@pytest.mark.parametrize("size", range(len(LEAVES)))
def test_the_root_is_the_defined_one(size):
    """TREE-1: the root equals the recursive definition, for every size."""
    assert tree.root_of(LEAVES[:size]) == defined(LEAVES[:size])


def test_known_roots():
    """TREE-2: the test vectors of certificate-transparency: the empty tree, and eight leaves."""
    inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    leaves = [tree.leaf_hash(bytes.fromhex(text)) for text in inputs]
    assert tree.root_of([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert tree.root_of(leaves[:1]).hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert tree.root_of(leaves).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@pytest.mark.parametrize("size", range(1, len(LEAVES)))
def test_every_leaf_is_included_and_no_other(size):
    """TREE-3: each path proves its leaf at its place, and no other leaf, place, size or root."""
    leaves = LEAVES[:size]
    root = tree.root_of(leaves)
    for index, leaf in enumerate(leaves):
        path = tree.inclusion_path(index, leaves)
        assert tree.includes(root, size, leaf=leaf, index=index, path=path)
        assert not tree.includes(root, size, leaf=LEAVES[-1], index=index, path=path)
        assert not tree.includes(defined(LEAVES), size, leaf=leaf, index=index, path=path)
        assert not tree.includes(root, size, leaf=leaf, index=index, path=[*path, root])
        if path:
            assert not tree.includes(root, size, leaf=leaf, index=index, path=path[:-1])
        others = [other for other in range(-1, size + 1) if other != index]
        assert not any(tree.includes(root, size, leaf=leaf, index=other, path=path) for other in others)


@pytest.mark.parametrize("size", range(len(LEAVES)))
def test_every_tree_extends_its_beginnings_and_no_others(size):
    """TREE-4: each consistency path proves the old root a prefix, and no other old root, size or new root."""
    leaves = LEAVES[:size]
    root = tree.root_of(leaves)
    for old_size in range(size + 1):
        old = tree.root_of(leaves[:old_size])
        path = tree.consistency_path(old_size, leaves)
        assert tree.extends(old, old_size, root, size, path)
        assert not tree.extends(LEAVES[-1], old_size, root, size, path)
        assert not tree.extends(old, old_size, root, size, [*path, root])
        if 0 < old_size < size:
            assert not tree.extends(old, old_size, LEAVES[-1], size, path)
            assert not tree.extends(old, old_size, root, size, path[:-1])


def test_what_cannot_be_is_refused():
    """TREE-5: paths of leaves and sizes that are not there are errors; proofs about them do not hold."""
    with pytest.raises(IndexError):
        tree.inclusion_path(3, LEAVES[:3])
    with pytest.raises(IndexError):
        tree.consistency_path(4, LEAVES[:3])
    assert not tree.extends(LEAVES[0], 4, LEAVES[1], 3, [])
    assert not tree.extends(LEAVES[0], -1, LEAVES[1], 3, [])
    assert not tree.extends(LEAVES[0], 3, LEAVES[1], 4, [])


@given(st.integers(1, 300), st.data())
def test_large_trees(size, data):
    """TREE-6: the same holds for larger trees, and a changed path proves nothing."""
    leaves = [tree.leaf_hash(number.to_bytes(2, "big")) for number in range(size)]
    index = data.draw(st.integers(0, size - 1))
    path = tree.inclusion_path(index, leaves)
    root = tree.root_of(leaves)
    assert tree.includes(root, size, leaf=leaves[index], index=index, path=path)
    if path:
        wrong = data.draw(st.integers(0, len(path) - 1))
        path[wrong] = bytes(32)
        assert not tree.includes(root, size, leaf=leaves[index], index=index, path=path)
