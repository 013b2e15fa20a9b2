# SPDX-License-Identifier: BSD-3-Clause
"""Several works as one."""
import datetime
import time

from .work import NO_TIMEOUT, Gpu, GradwireWork, is_asked, seconds


class AllWork(GradwireWork):
    """Several works as one: what _coalescing_manager and batch_isend_irecv return."""

    def __init__(self, works):
        tensors = [tensor for work in works for tensor in work.tensors]
        super().__init__(
            works[0].engine if works else None,
            lambda: "one of %d coalesced calls" % len(works),
            tensors,
            max([work.timeout_s for work in works], default=1.0),
        )
        self._works = works
        self._joined = False
        self.number = works[-1].number if works else 0
        on_gpu = next((work.gpu for work in works if work.gpu is not None), None)
        if on_gpu is not None:
            self.gpu = Gpu(on_gpu.device, on_gpu.side, on_gpu.told)
            self.finish = self._order_all  # behind what all of them copy
            self._join()

    def _join(self):
        """From now on it ends with the last of them. Until then it only asks them."""
        with self._lock:
            if self._joined:
                return
            self._joined = True
        for work in self._works:
            work._watch()
        self.follow_all(self._works, True)
        self.seal()

    def _order_all(self):
        for work in self._works:
            if work.gpu is not None:
                work._order()

    def wait(self, timeout=NO_TIMEOUT):
        limit = seconds(timeout, None)
        until = None if limit is None else time.monotonic() + limit
        for work in self._works:
            left = None if until is None else max(until - time.monotonic(), 0.001)
            work.wait(NO_TIMEOUT if left is None else datetime.timedelta(seconds=left))
        return super().wait(timeout) if self._joined else True

    def get_future(self):
        if not is_asked():
            self._join()
        return super().get_future()

    def is_completed(self):
        if self._joined:
            return super().is_completed()
        return all([work.is_completed() for work in self._works])

    def exception(self):
        if self._joined:
            return super().exception()
        return next((w.error for w in self._works if w.exception() is not None), None)

    def is_success(self):
        return self.is_completed() and self.exception() is None
