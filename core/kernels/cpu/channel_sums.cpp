#include "core/kernels/cpu/channels.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/parallel_for.h"

namespace stagecoach {

void CpuKernels::channel_sums(const Tensor& x, Tensor& out) const {
  dispatch_floating(x.dtype(), "channel_sums", [&]<class T>() {
    const cpu::ChannelLayout layout(x.shape());
    const T* from = x.data<T>();  // [N, C, S]
    T* sums = out.mutable_data<T>();
    parallel_for(x.device(), layout.channels, [&](std::int64_t c) {
      sums[c] = cpu::sum_over_channel<T>(layout, c, [from](std::int64_t i) { return from[i]; });
    });
  });
}

}  // namespace stagecoach
