#include "core/kernels/kernels.h"

#include <algorithm>

#include "core/asynchronous.h"
#include "core/base/error.h"
#include "core/cuda_backend.h"
#include "core/kernel_meter.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"
#include "core/kernels/levels.h"

namespace stagecoach {

template <class Result>
void require_rows(const char* folder, const KernelTable<Result>& table) {
  const auto rows = rows_of(table);
  const auto empty = std::find(rows.begin(), rows.end(), nullptr);
  STAGECOACH_CHECK(empty == rows.end(),
                   "kernel table of {0}: expected a function in every row, got none in row {1} of {2} (see "
                   "core/kernels/kernels.h); add it in core/kernels/{0}",
                   folder, empty - rows.begin() + 1, rows.size());
}
template void require_rows(const char* folder, const Kernels& table);
template void require_rows(const char* folder, const KernelCosts& table);

const Kernels& kernels(Device device) {
  if (device.type == DeviceType::cuda) {
    return cuda::kernels();
  }
  static const cpu::Tables& tables = *cpu::level_in_use().tables();
  if (device.type == DeviceType::meta) {
    return tables.meta;
  }
  if (is_asynchronous(device)) {
    return tables.queued;
  }
  return KernelMeter::current() != nullptr ? tables.metered : tables.kernels;
}

const KernelCosts& kernel_costs() {
  static const KernelCosts table = [] {
    using namespace costs;
    KernelCosts filled{};
    for (costs::AddRows* add_rows :
         {add_attention, add_attention_part, add_batch_norm, add_conv2d, add_elementwise, add_images, add_layer_norm,
          add_linear, add_losses, add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens}) {
      add_rows(filled);
    }
    require_rows("costs", filled);
    return filled;
  }();
  return table;
}

}  // namespace stagecoach
