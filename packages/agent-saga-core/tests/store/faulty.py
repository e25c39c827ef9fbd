"""An SQLite VFS that fails on demand: a full disk, an I/O error, a read-only place, a lock; counts what it is asked."""

import apsw


class Faults:
    """What fails: the n-th operation of these kinds from now on, and (unless `once`) all after it."""

    def __init__(self):
        self.kinds = ()
        self.left = -1
        self.error = apsw.IOError
        self.once = False
        self.seen = 0
        self.hit = 0

    def fail(self, *kinds, after=0, error=apsw.IOError, once=False):
        self.kinds, self.left, self.error, self.once, self.hit = kinds, after, error, once, 0

    def heal(self):
        self.kinds, self.left = (), -1

    def pass_or_fail(self, kind):
        self.seen += 1
        if kind in self.kinds or "any" in self.kinds:
            self.left -= 1
            if self.left < 0 and not (self.once and self.hit):
                self.hit += 1
                raise self.error(f"{kind} failed on purpose")


class FaultyFile(apsw.VFSFile):
    def __init__(self, faults, name, flags):
        self.faults = faults
        super().__init__("", name, flags)

    def xWrite(self, data, offset):
        self.faults.pass_or_fail("write")
        super().xWrite(data, offset)

    def xSync(self, flags):
        self.faults.pass_or_fail("sync")
        super().xSync(flags)

    def xTruncate(self, size):
        self.faults.pass_or_fail("truncate")
        super().xTruncate(size)

    def xRead(self, amount, offset):
        self.faults.pass_or_fail("read")
        return super().xRead(amount, offset)

    def xFileSize(self):
        self.faults.pass_or_fail("size")
        return super().xFileSize()

    def xLock(self, level):
        self.faults.pass_or_fail("lock")
        super().xLock(level)


class FaultyVfs(apsw.VFS):
    def __init__(self, name):
        self.faults, self.name = Faults(), name
        super().__init__(name, "")

    def xOpen(self, name, flags):
        self.faults.pass_or_fail("open")
        return FaultyFile(self.faults, name, flags)

    def xAccess(self, name, flags):
        self.faults.pass_or_fail("access")
        return super().xAccess(name, flags)

    def xDelete(self, name, sync_directory):
        self.faults.pass_or_fail("delete")
        super().xDelete(name, sync_directory)
