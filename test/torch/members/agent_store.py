# SPDX-License-Identifier: BSD-3-Clause
"""The store of a job, as torchrun's agent has it: it outlives every process of the job. Serves on
$MASTER_PORT until it is ended."""
import os
import signal

from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=True,
                 wait_for_workers=False)
print("serves", flush=True)
signal.pause()
