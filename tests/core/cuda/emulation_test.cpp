// What the emulation promises to find. The kernels here are wrong on purpose.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "tests/support/errors.h"

namespace stagecoach::cuda {

// With names of their own, and not in an unnamed namespace: errors name kernels.

struct Numbers {
  float at[64];
};

/// out[t] = t reversed, through shared memory.
__global__ void reverse(float* out) {
  STAGECOACH_SHARED(Numbers, numbers);
  numbers.at[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = numbers.at[blockDim.x - 1 - threadIdx.x];
}

__global__ void reverse_without_barrier(float* out) {
  STAGECOACH_SHARED(Numbers, numbers);
  numbers.at[threadIdx.x] = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = numbers.at[blockDim.x - 1 - threadIdx.x];
}

/// Each round writes what the next thread reads; the second barrier of a round is missing.
__global__ void pass_on_without_second_barrier(float* out) {
  STAGECOACH_SHARED(Numbers, numbers);
  float value = static_cast<float>(threadIdx.x);
  for (int round = 0; round < 3; ++round) {
    numbers.at[threadIdx.x] = value;
    __syncthreads();
    value = numbers.at[(threadIdx.x + 1) % blockDim.x];
  }
  out[threadIdx.x] = value;
}

__global__ void barrier_for_some() {
  if (threadIdx.x < 5) {
    __syncthreads();
  }
}

__global__ void two_barriers() {
  if (threadIdx.x < 5) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

/// Warps that reverse their own numbers, the second one twice.
__global__ void reverse_warps(float* out) {
  STAGECOACH_SHARED(Numbers, numbers);
  const unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  float value = static_cast<float>(lane);
  for (unsigned round = 0; round <= warp; ++round) {
    numbers.at[threadIdx.x] = value;
    __syncwarp();
    value = numbers.at[32 * warp + 31 - lane];
    __syncwarp();
  }
  __syncthreads();
  out[threadIdx.x] = value;
}

__global__ void warp_barrier_for_some() {
  if (threadIdx.x != 40) {
    __syncwarp();
  }
  __syncthreads();
}

/// out[t] = the sum of the warp's numbers, by exchanges of registers.
__global__ void sum_warp(float* out, bool all) {
  auto value = static_cast<float>(threadIdx.x);
  if (all || threadIdx.x < 31) {
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(0xffffffffU, value, distance);
    }
  }
  out[threadIdx.x] = value;
}

/// out [16, 8] = a [16, 8] b [8, 8], of which the tensor cores see what they see.
__global__ void multiply_on_tensor_cores(const float* a, const float* b, float* out, bool all) {
  const unsigned group = threadIdx.x / 4;
  const unsigned place = threadIdx.x % 4;
  const auto bits = [](const float* x, unsigned row, unsigned column) { return __float_as_uint(x[8 * row + column]); };
  const std::uint32_t fragment_a[4] = {bits(a, group, place), bits(a, group + 8, place), bits(a, group, place + 4),
                                       bits(a, group + 8, place + 4)};
  const std::uint32_t fragment_b[2] = {bits(b, place, group), bits(b, place + 4, group)};
  float sums[4] = {};
  if (all || threadIdx.x < 31) {
    multiply_tf32(sums, fragment_a, fragment_b);
  }
  for (unsigned i = 0; i < 4; ++i) {
    out[8 * (group + i / 2 * 8) + 2 * place + i % 2] = sums[i];
  }
}

__global__ void read_beyond(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x + 1]; }

__global__ void read_beyond_shared(float* out) {
  STAGECOACH_SHARED(Numbers, numbers);
  numbers.at[threadIdx.x] = 1;
  __syncthreads();
  const float* beyond = &numbers.at[0] + 64;
  out[threadIdx.x] = *beyond;
}

struct Much {
  char bytes[49 << 10];
};
__global__ void share_much() {
  STAGECOACH_SHARED(Much, much);
  much.bytes[threadIdx.x] = 0;
}

__global__ void write_places(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}

namespace {

using test::fails_with;

std::vector<float> reversed(int threads) {
  std::vector<float> values;
  for (int t = threads - 1; t >= 0; --t) {
    values.push_back(static_cast<float>(t));
  }
  return values;
}

TEST(Emulation, RunsEveryThreadOfEveryBlockOnce) {
  std::vector<unsigned> out(2 * 3 * 2 * 4 * 2 * 3, 0);
  launch(write_places, dim3(2, 3, 2), dim3(4, 2, 3), 0, nullptr, out.data());
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], 1000 * (i / 24) + i % 24);
  }
}

TEST(Emulation, BarriersHoldThreadsTogether) {
  for (const int threads : {1, 2, 33, 64}) {
    std::vector<float> out(static_cast<std::size_t>(threads));
    launch(reverse, 3, static_cast<unsigned>(threads), 0, nullptr, out.data());
    EXPECT_EQ(out, reversed(threads));
  }
}

// In whichever order the threads run: blocks take turns.
TEST(Emulation, AMissingBarrierGivesWrongResults) {
  for (const unsigned blocks : {1U, 2U}) {
    std::vector<float> out(64);
    launch(reverse_without_barrier, blocks, 64, 0, nullptr, out.data());
    EXPECT_NE(out, reversed(64));
  }
}

TEST(Emulation, AMissingBarrierBeforeTheNextRoundGivesWrongResults) {
  std::vector<float> right(64);
  for (std::size_t t = 0; t < 64; ++t) {
    right[t] = static_cast<float>((t + 3) % 64);
  }
  for (const unsigned blocks : {1U, 2U}) {
    std::vector<float> out(64);
    launch(pass_on_without_second_barrier, blocks, 64, 0, nullptr, out.data());
    EXPECT_NE(out, right);
  }
}

TEST(Emulation, ABarrierThatNotAllReachIsAnError) {
  const auto run = [] { launch(barrier_for_some, 2, 8, 0, nullptr); };
  EXPECT_TRUE(fails_with({"barrier_for_some", "5 of 8 threads", "emulation_test.cpp", "others have returned"}, run));
  EXPECT_TRUE(fails_with({"barrier_for_some"}, run)) << "again: nothing of the first run is left";
  std::vector<float> out(8);
  launch(reverse, 1, 8, 0, nullptr, out.data());
  EXPECT_EQ(out, reversed(8)) << "and other kernels work";
}

TEST(Emulation, BarriersInTwoPlacesAreAnError) {
  EXPECT_TRUE(fails_with({"two_barriers", "different barriers", "emulation_test.cpp"},
                         [] { launch(two_barriers, 1, 8, 0, nullptr); }));
}

TEST(Emulation, AWarpWaitsForItselfOnly) {
  std::vector<float> out(64);
  launch(reverse_warps, 1, 64, 0, nullptr, out.data());
  for (std::size_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane], static_cast<float>(31 - lane));
    EXPECT_EQ(out[32 + lane], static_cast<float>(lane)) << "reversed twice";
  }
}

TEST(Emulation, AWarpBarrierThatNotAllReachIsAnError) {
  EXPECT_TRUE(fails_with({"warp_barrier_for_some", "31 of 32 threads of warp 1", "emulation_test.cpp"},
                         [] { launch(warp_barrier_for_some, 1, 64, 0, nullptr); }));
}

TEST(Emulation, AWarpExchangesRegisters) {
  std::vector<float> out(64);
  launch(sum_warp, 1, 64, 0, nullptr, out.data(), true);
  for (std::size_t thread = 0; thread < 64; ++thread) {
    EXPECT_EQ(out[thread], thread < 32 ? 31 * 16 : 31 * 16 + 32 * 32);
  }
  EXPECT_TRUE(fails_with({"sum_warp", "31 of 32 threads", "emulation_test.cpp"},
                         [&] { launch(sum_warp, 1, 32, 0, nullptr, out.data(), false); }));
}

TEST(Emulation, TensorCoresSeeTenBitsOfFraction) {
  std::vector<float> a(16 * 8), b(8 * 8), out(16 * 8), expected(16 * 8);
  for (std::size_t i = 0; i < 16 * 8; ++i) {
    a[i] = static_cast<float>(i % 23 + 1) + 0x1p-12F;  // the last bit is not seen
    b[i % 64] = static_cast<float>(i % 64 % 19) - 7;
  }
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t n = 0; n < 8; ++n) {
      for (std::size_t k = 0; k < 8; ++k) {
        expected[8 * m + n] += static_cast<float>((8 * m + k) % 23 + 1) * b[8 * k + n];
      }
    }
  }
  launch(multiply_on_tensor_cores, 1, 32, 0, nullptr, a.data(), b.data(), out.data(), true);
  EXPECT_EQ(out, expected);
}

TEST(Emulation, RoundsToTenBitsOfFraction) {
  const auto rounded = [](float value) { return __uint_as_float(round_to_tf32(value)); };
  EXPECT_EQ(rounded(1 + 0x1p-11F), 1) << "ties go to even";
  EXPECT_EQ(rounded(1 + 0x1p-10F + 0x1p-11F), 1 + 0x1p-9F);
  EXPECT_EQ(rounded(-1 - 0x1p-11F), -1);
  EXPECT_EQ(rounded(1 + 0x1p-12F), 1);
  EXPECT_EQ(rounded(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Emulation, TensorCoresRefuseAWarpThatIsNotWhole) {
  std::vector<float> a(16 * 8), b(8 * 8), out(16 * 8);
  EXPECT_TRUE(fails_with({"multiply_on_tensor_cores", "31 of 32 threads", "emulation_test.cpp"}, [&] {
    launch(multiply_on_tensor_cores, 1, 32, 0, nullptr, a.data(), b.data(), out.data(), false);
  }));
  EXPECT_TRUE(fails_with({"multiply_on_tensor_cores", "a warp of 8 threads"}, [&] {
    launch(multiply_on_tensor_cores, 1, 8, 0, nullptr, a.data(), b.data(), out.data(), true);
  }));
}

/// A stream that records.
class Recorded {
 public:
  Recorded() {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  ~Recorded() {
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
};

TEST(Emulation, ARecordedStreamDoesItsWorkWhenTheGraphIsLaunched) {
  std::vector<float> out(8), copy(8);
  Recorded recorded;
  launch(reverse, 1, 8, 0, recorded.stream, out.data());
  cudaMemcpyAsync(copy.data(), out.data(), 8 * sizeof(float), cudaMemcpyDefault, recorded.stream);
  ASSERT_EQ(cudaStreamEndCapture(recorded.stream, &recorded.graph), cudaSuccess);
  EXPECT_EQ(out, std::vector<float>(8)) << "not yet";
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, recorded.graph, 0), cudaSuccess);
  for (int run = 0; run < 2; ++run) {
    std::fill(out.begin(), out.end(), 0.0F);
    ASSERT_EQ(cudaGraphLaunch(executable, recorded.stream), cudaSuccess);
    EXPECT_EQ(out, reversed(8));
    EXPECT_EQ(copy, reversed(8));
  }
  cudaGraphExecDestroy(executable);
}

TEST(Emulation, ARecordingIsSpoiledByWaiting) {
  Recorded recorded;
  EXPECT_EQ(cudaStreamSynchronize(recorded.stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(recorded.stream, &recorded.graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamSynchronize(recorded.stream), cudaSuccess) << "the stream is itself again";
}

TEST(Emulation, AThreadThatRecordsAsksForMemoryOnlyIfItInsists) {
  Recorded recorded;
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  cudaThreadExchangeStreamCaptureMode(&mode);
  EXPECT_EQ(cudaStreamEndCapture(recorded.stream, &recorded.graph), cudaSuccess);
}

TEST(Emulation, RefusesWhatAGpuWouldAndNamesTheKernel) {
  float out = 0;
  const auto with = [&](dim3 grid, dim3 block, std::size_t shared) {
    return [=, &out] { launch(reverse, grid, block, shared, nullptr, &out); };
  };
  for (const auto& run :
       {with(0, 1, 0), with(1, 0, 0), with(1, 1025, 0), with(1, dim3(32, 33), 0), with(dim3(1, 70000), 1, 0)}) {
    EXPECT_TRUE(fails_with({"kernel stagecoach::cuda::reverse", "invalid configuration", "grid", "block"}, run));
  }
  EXPECT_TRUE(fails_with({"reverse", "invalid argument", "250000 bytes"}, with(1, 1, 250000)));
  EXPECT_TRUE(fails_with({"share_much", "50176 bytes", "49152"}, [] { launch(share_much, 1, 1, 0, nullptr); }));
}

#if defined(__SANITIZE_ADDRESS__)
TEST(EmulationDeathTest, AReadBehindAnArrayIsFound) {
  const std::vector<float> x(8);
  std::vector<float> out(8);
  EXPECT_DEATH(launch(read_beyond, 1, 8, 0, nullptr, x.data(), out.data()), "heap-buffer-overflow.*\n.*READ");
}

TEST(EmulationDeathTest, AReadBehindSharedMemoryIsFound) {
  std::vector<float> out(8);
  EXPECT_DEATH(launch(read_beyond_shared, 1, 8, 0, nullptr, out.data()), "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace stagecoach::cuda
