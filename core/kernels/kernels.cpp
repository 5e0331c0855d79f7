#include "core/kernels/kernels.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/asynchronous.h"
#include "core/base/error.h"
#include "core/cuda_backend.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"
#include "core/kernels/levels.h"

namespace stagecoach {

void require_rows(const char* backend, const Kernels& table) {
  using Row = void (*)();
  const auto rows = std::bit_cast<std::array<Row, sizeof(Kernels) / sizeof(Row)>>(table);
  const auto empty = std::find(rows.begin(), rows.end(), nullptr);
  STAGECOACH_CHECK(empty == rows.end(),
                   "kernel table of {0}: expected a function in every row, got none in row {1} of {2} (see "
                   "core/kernels/kernels.h); add it in core/kernels/{0}",
                   backend, empty - rows.begin() + 1, rows.size());
}

const Kernels& kernels(Device device) {
  if (device.type == DeviceType::cuda) {
    return cuda::kernels();
  }
  static const cpu::Tables& tables = *cpu::level_in_use().tables();
  return is_asynchronous(device) ? tables.queued : tables.kernels;
}

}  // namespace stagecoach
