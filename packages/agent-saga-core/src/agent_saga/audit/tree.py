"""The Merkle tree of a log.

Source:
    RFC 9162, sections 2.1.1 (tree hash), 2.1.3 (inclusion) and 2.1.4 (consistency), with SHA-256. The hashes of leaves
    and of inner nodes have different prefixes (0x00 and 0x01), so that neither can be taken for the other.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf (32 bytes)."""
    return hashlib.sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node (32 bytes)."""
    return hashlib.sha256(b"\1" + left + right).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes. Pairing level by level gives the same tree as the RFC's recursive split."""
    level = list(leaves)
    if not level:
        return hashlib.sha256(b"").digest()
    while len(level) > 1:
        odd = [level[-1]] if len(level) % 2 else []
        level = [node_hash(left, right) for left, right in zip(level[::2], level[1::2], strict=False)] + odd
    return level[0]


def inclusion_path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """Return the hashes by which leaf `index` (from 0) leads to the root: PATH(m, D_n), the lowest sibling first."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"leaf {index} of a tree of {len(leaves)}")
    if len(leaves) == 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*inclusion_path(index, leaves[:split]), root_of(leaves[split:])]
    return [*inclusion_path(index - split, leaves[split:]), root_of(leaves[:split])]


def consistency_path(old_size: int, leaves: Sequence[bytes]) -> list[bytes]:
    """Return the hashes that show the tree of the first `old_size` leaves to be a prefix of this one: PROOF(m, D_n)."""
    if not 0 <= old_size <= len(leaves):
        raise IndexError(f"a tree of {old_size} leaves is no prefix of one of {len(leaves)}")
    if old_size in {0, len(leaves)}:
        return []
    return _subproof(old_size, leaves, whole=True)


def _subproof(old_size: int, leaves: Sequence[bytes], *, whole: bool) -> list[bytes]:
    if old_size == len(leaves):
        return [] if whole else [root_of(leaves)]
    split = _split(len(leaves))
    if old_size <= split:
        return [*_subproof(old_size, leaves[:split], whole=whole), root_of(leaves[split:])]
    return [*_subproof(old_size - split, leaves[split:], whole=False), root_of(leaves[:split])]


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1


def includes(root: bytes, size: int, *, leaf: bytes, index: int, path: Sequence[bytes]) -> bool:
    """Tell whether an inclusion proof holds: the tree of `size` leaves with this root has `leaf` at `index` (from 0).

    Source:
        RFC 9162, section 2.1.3.2.
    """
    if not 0 <= index < size:
        return False
    first, last, found = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return False
        if first & 1 or first == last:
            found = node_hash(sibling, found)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        first, last = first >> 1, last >> 1
    return last == 0 and found == root


def extends(old_root: bytes, old_size: int, root: bytes, size: int, path: Sequence[bytes]) -> bool:
    """Tell whether a consistency proof holds: the tree of `size` leaves begins with that of `old_size` leaves.

    Source:
        RFC 9162, section 2.1.4.2.
    """
    if old_size in {0, size}:
        return not path and old_root == (root if old_size else root_of([]))
    if not 0 < old_size < size:
        return False
    steps = list(path)
    if old_size & (old_size - 1) == 0:
        steps.insert(0, old_root)
    if not steps:
        return False
    first, last = old_size - 1, size - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    old = new = steps[0]
    for sibling in steps[1:]:
        if last == 0:
            return False
        if first & 1 or first == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        first, last = first >> 1, last >> 1
    return last == 0 and old == old_root and new == root
