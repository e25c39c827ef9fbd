"""Evidence: what a log proves to somebody who trusts neither the log's machine nor its owner.

```text
tree       the Merkle tree of RFC 9162: roots, inclusion and consistency proofs
note       signed notes and checkpoints (C2SP), by which a root is anchored elsewhere
leaves     the tree of a log: which sagas are its leaves, its root now and at an earlier size
anchor     a log against a checkpoint of it: is it still an extension of what it was?
proof      one saga, whole, to somebody who does not get the log
certify    is every effect in a log accounted for?
```
"""
