# SPDX-License-Identifier: BSD-3-Clause
"""Tests of PyTorch's that are not run on gradwire, and why."""
_CUDA = "it needs a GPU, and does not skip without one"
_NAMED = "it prepares its model for the backends gloo and nccl alone"
_TEXT = "it wants Gloo's words of processes that are not missing themselves, or of rank 0"
_SOURCE = "gradwire receives from a process that the call names, not from any"
EXCLUDED = {
    "test_SyncBatchNorm_process_group": "it needs torchvision",
    "test_accumulate_gradients_no_sync": _NAMED,
    "test_accumulate_gradients_no_sync_allreduce_hook": _NAMED,
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook": _NAMED,
    "test_accumulate_gradients_no_sync_grad_is_view": _NAMED,
    "test_all_to_all_cuda": _CUDA,
    "test_all_to_all_cuda_complex": _CUDA,
    "test_all_to_all_full_group_cuda": _CUDA,
    "test_batch_isend_irecv_mixed_backend_err": _CUDA,
    "test_batch_isend_irecv_op_err": _CUDA,
    "test_ddp_logging_data_cpu": "torch's logger calls every plugin's backend 'custom'",
    "test_monitored_barrier_gloo": _TEXT,
    "test_monitored_barrier_gloo_rank_0_timeout": _TEXT,
    "test_new_subgroups_with_group_param": "it needs four processes, and does not skip with three",
    "test_send_recv_any_source": _SOURCE,
    "test_send_recv_any_source_autograd_profiler": _SOURCE,
    "test_send_recv_any_source_torch_profiler": _SOURCE,
}
