// SPDX-License-Identifier: BSD-3-Clause
// The kernels. What a thread does is in kernel_body.h, which the tests run without a GPU. Sums of
// the usual datatypes of gradients have kernels of their own, which need fewer registers and so
// allow more threads; everything else uses one general kernel. launch.cc starts them.
#include "reduce/cuda/kernels.h"
#include "reduce/gpu/format_body.h"
#include "reduce/gpu/kernel_body.h"

namespace gradwire::reduce::cuda {
namespace {

/// Computes the tile's CRC if requested, over bytes that other threads of the block have written. A
/// function of its own, so that it does not add to the folds' registers.
template <class Load>
__noinline__ __device__ void sum_up(const Batch& batch, std::uint32_t tile) {
  // The same for all of the block's threads.
  if (batch.items[item_of_tile(batch, tile)].crc == 0) return;
  __syncthreads();
  crc_tile<Load>(batch, tile, threadIdx.x);
}

// --- One launch for each batch

template <class Ops>
__global__ void __launch_bounds__(kThreadsPerBlock)
    sum_kernel(const __grid_constant__ Batch batch) {
  __shared__ Vector16 shared[kVectorsPerTile];
  for (std::uint32_t tile = blockIdx.x; tile < batch.tile_count; tile += gridDim.x) {
    const BatchItem& item = batch.items[item_of_tile(batch, tile)];
    fold_tile<Ops, RedOp::kSum, PlainLoad, true>(item, batch.addresses + item.first_address,
                                                 tile - item.first_tile, threadIdx.x, blockDim.x,
                                                 shared);
    sum_up<PlainLoad>(batch, tile);
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    batch_kernel(const __grid_constant__ Batch batch) {
  __shared__ Vector16 shared[kVectorsPerTile];
  for (std::uint32_t tile = blockIdx.x; tile < batch.tile_count; tile += gridDim.x) {
    run_tile<PlainLoad>(batch, tile, threadIdx.x, blockDim.x, shared);
    sum_up<PlainLoad>(batch, tile);
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    format_kernel(const __grid_constant__ FormatBatch batch) {
  for (std::uint32_t tile = blockIdx.x; tile < batch.tile_count; tile += gridDim.x) {
    format_tile(batch, tile, threadIdx.x);
  }
}

// --- The persistent kernel
//
// Its loads are plain ones. What the host has written before it rang is there for the thread that
// acquires the doorbell, then, by way of the GPU's fence and `published`, for the thread of each
// block that acquires that, and behind the block's barrier for all: causality is transitive in
// PTX's memory model, whatever a cache held of a recycled packet. Loads past the caches (ld.cv)
// took three to eight times as long on an H200: each of its warps' accesses is sixteen over the
// bus.

__device__ std::uint64_t acquire_system(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
/// What comes before it in the program is ordered by the fence that stands there.
__device__ void store_system(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ std::uint32_t acquire_gpu(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ void release_gpu(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ std::uint64_t now_ns() {
  std::uint64_t value;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(value));
  return value;
}

constexpr unsigned long long kNothing = ~0ull;
constexpr unsigned long long kEnd = ~0ull - 1;
constexpr unsigned kWarp = 32;
constexpr unsigned kStopLane = kQueueSlots;  ///< those from here on read words->stop
static_assert(kStopLane < kWarp);

/// Only warp 0 of block 0 reads the host's doorbells, over the bus. It passes new batches on to all
/// blocks through GPU memory, so all blocks run the same batches in the same order and end after
/// the same one.
struct Dispatcher {
  std::uint32_t seen;  ///< the last number passed on for this lane's slot
  std::uint32_t published = 0;
  std::uint64_t idle_since;
  bool ended = false;

  __device__ explicit Dispatcher(const QueueWords& words) : seen(0), idle_since(now_ns()) {
    if (threadIdx.x < kQueueSlots) {
      seen = words.done[threadIdx.x] & ~QueueWords::kFailed;
    }
  }

  __device__ void look(const PersistentArguments& arguments) {
    if (ended) return;
    PersistentState& state = *arguments.state;
    // One read over the bus: each lane its own word. What decides for all lanes is read by one:
    // another might see a later value, and go elsewhere.
    const std::uint64_t* const word = threadIdx.x < kQueueSlots
                                          ? &arguments.words->doorbell[threadIdx.x]
                                          : &arguments.words->stop;
    const std::uint64_t value = acquire_system(word);
    const auto tiles = static_cast<std::uint32_t>(value);
    const std::uint32_t stop = __shfl_sync(~0u, tiles, kStopLane);
    const std::uint32_t bell =
        stop == 0 && threadIdx.x < kQueueSlots ? QueueWords::number_of(value) : seen;
    const unsigned rung = __ballot_sync(~0u, bell != seen);
    if (bell != seen) {
      const std::uint32_t before = __popc(rung & ((1u << threadIdx.x) - 1));
      state.ring[(published + before) % PersistentState::kRing] =
          static_cast<unsigned long long>(bell) << 32 |
          min(tiles, PersistentEntry::kTilesMax) << PersistentEntry::kSlotBits | threadIdx.x;
      seen = bell;
      // What this lane acquired from the host must be visible to every block that acquires
      // `published`.
      __threadfence();
    }
    __syncwarp();
    if (rung != 0) {
      published += __popc(rung);
      idle_since = now_ns();
      if (threadIdx.x == 0) release_gpu(&state.published, published);
      return;
    }
    bool end = false;
    if (threadIdx.x == 0) {
      end = (stop != 0 || now_ns() - idle_since > arguments.idle_ns) &&
            acquire_gpu(&state.finished) == published;
      if (end) {
        state.ring[published % PersistentState::kRing] = kEnd;
        release_gpu(&state.published, published + 1);
      }
    }
    ended = __shfl_sync(~0u, end, 0);
  }
};

/// Copies what the batch uses of its memory, by vectors. Most batches take one read over the bus;
/// only the first vectors say whether there are more than a block has threads.
__device__ void fetch(Batch& to, const Batch& from) {
  static_assert(sizeof(Batch) % sizeof(Vector16) == 0 && sizeof(Batch) > sizeof(Vector16));
  const auto* vectors = reinterpret_cast<const Vector16*>(&from);
  auto* copies = reinterpret_cast<Vector16*>(&to);
  copies[threadIdx.x] = vectors[threadIdx.x];
  __syncthreads();
  const std::size_t bytes = offsetof(Batch, addresses) + to.address_count * sizeof(std::uint64_t);
  const auto used = static_cast<std::uint32_t>((bytes + sizeof(Vector16) - 1) / sizeof(Vector16));
  for (std::uint32_t i = threadIdx.x + blockDim.x; i < used; i += blockDim.x) {
    copies[i] = vectors[i];
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    persistent_kernel(const PersistentArguments arguments) {
  __shared__ Batch batch;
  __shared__ Vector16 shared[kVectorsPerTile];
  __shared__ unsigned long long entry;
  PersistentState& state = *arguments.state;
  const bool dispatches = blockIdx.x == 0 && threadIdx.x < kWarp;
  Dispatcher dispatcher(*arguments.words);
  std::uint32_t next = 0;  // batch that this block takes next

  while (true) {
    if (dispatches) dispatcher.look(arguments);
    if (threadIdx.x == 0) {
      entry = acquire_gpu(&state.published) == next ? kNothing
                                                    : state.ring[next % PersistentState::kRing];
    }
    __syncthreads();
    const unsigned long long taken = entry;
    __syncthreads();  // all threads have read `entry` before it changes
    if (taken == kEnd) break;
    if (taken == kNothing) {
      if (blockIdx.x != 0) __nanosleep(100);
      continue;
    }
    ++next;
    const auto place = static_cast<std::uint32_t>(taken);
    const std::uint32_t slot = place & ((1u << PersistentEntry::kSlotBits) - 1);
    // A block that has no tile of the batch takes part in its end alone: what each reads and fences
    // over the bus, the others wait for.
    const bool works = blockIdx.x < place >> PersistentEntry::kSlotBits;
    if (works) fetch(batch, arguments.batches[slot]);
    for (std::uint32_t tile = blockIdx.x; works && tile < batch.tile_count; tile += gridDim.x) {
      run_tile<PlainLoad>(batch, tile, threadIdx.x, blockDim.x, shared);
      sum_up<PlainLoad>(batch, tile);
    }
    // Payloads before the status: each thread's stores, the block's barrier, one thread's fence for
    // all of them (fences are cumulative, as in cooperative groups' barrier of a grid), its
    // arrival; and of the block that arrives last a fence after it has seen the others, then the
    // status.
    __syncthreads();
    if (threadIdx.x == 0) {
      if (works) __threadfence_system();
      if (atomicAdd(&state.arrived[slot], 1u) == gridDim.x - 1) {
        state.arrived[slot] = 0;
        __threadfence_system();
        store_system(&arguments.words->done[slot], static_cast<std::uint32_t>(taken >> 32));
        atomicAdd(&state.finished, 1u);
      }
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    __threadfence_system();
    store_system(&arguments.words->parked, arguments.run);
  }
}

template <class Kernel>
const void* address(Kernel* kernel) noexcept {
  return reinterpret_cast<const void*>(kernel);
}

}  // namespace

const void* address_of(Kernel kernel) noexcept {
  switch (kernel) {
    case Kernel::kSumFloat32:
      return address(sum_kernel<ScalarFloat<float>>);
    case Kernel::kSumFloat64:
      return address(sum_kernel<ScalarFloat<double>>);
    case Kernel::kSumFloat16:
      return address(sum_kernel<ScalarHalf>);
    case Kernel::kSumBfloat16:
      return address(sum_kernel<ScalarBfloat>);
    case Kernel::kBatch:
      return address(batch_kernel);
    case Kernel::kPersistent:
      return address(persistent_kernel);
    case Kernel::kFormat:
      return address(format_kernel);
  }
  return nullptr;
}

}  // namespace gradwire::reduce::cuda
