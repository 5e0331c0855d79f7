#include "core/kernels/cpu/tables.h"

#include <algorithm>

#include "core/kernels/groups.h"
#include "core/kernels/queued_copy.h"

namespace stagecoach::cpu {

Tensor Accesses::write(const Tensor& tensor) {
  if (tensor.defined()) {
    tensor.storage()->bump_version();
  }
  return keep(tensor, true);
}

Tensor Accesses::keep(const Tensor& tensor, bool writes) {
  if (!tensor.defined()) {
    return {};
  }
  device = tensor.device();
  all.push_back({tensor.storage()->block().get(), writes, tensor.bytes()});
  return tensor.borrowed();
}

std::vector<Tensor> Kept<std::span<Tensor>>::of(std::span<Tensor> tensors, Accesses& accesses) {
  std::vector<Tensor> kept;
  for (const Tensor& tensor : tensors) {
    kept.push_back(accesses.write(tensor));
  }
  return kept;
}

std::vector<Tensor> Kept<std::span<const Tensor>>::of(std::span<const Tensor> tensors, Accesses& accesses) {
  std::vector<Tensor> kept;
  for (const Tensor& tensor : tensors) {
    kept.push_back(accesses.read(tensor));
  }
  return kept;
}

std::vector<ParameterUpdate> Kept<std::span<ParameterUpdate>>::of(std::span<ParameterUpdate> updates,
                                                                  Accesses& accesses) {
  std::vector<ParameterUpdate> kept;
  for (ParameterUpdate& update : updates) {
    kept.push_back({accesses.read(update.grad), accesses.write(update.parameter),
                    Kept<std::span<Tensor>>::of(update.state, accesses), accesses.read(update.count), update.decays});
  }
  return kept;
}

std::optional<Device> device_of(std::span<const Tensor> tensors) {
  return tensors.empty() ? std::nullopt : device_of(tensors.front());
}

std::optional<Device> device_of(std::span<ParameterUpdate> updates) {
  return updates.empty() ? std::nullopt : device_of(updates.front().parameter);
}

void (*cost_row(const Kernels& table))() {
  const auto rows = rows_of(table);
  const auto found = std::find_if(rows.begin(), rows.end(), [](const auto row) { return row != nullptr; });
  return rows_of(kernel_costs())[static_cast<std::size_t>(found - rows.begin())];
}

namespace {

void tell_meter_of_copy(const Tensor& source, Tensor& out) {
  KernelMeter* meter = KernelMeter::current();
  if (meter == nullptr || source.device() == out.device()) {
    return Row<&Kernels::copy>::tell_meter(source, out);
  }
  meter->copy(source.device(), out.device(), kernel_costs().copy(source, out));
}

void metered_copy(const Tensor& source, Tensor& out) {
  tell_meter_of_copy(source, out);
  Row<&Kernels::copy>::kernel(source, out);
}

}  // namespace

Tables make_tables(std::initializer_list<AddRows*> groups) {
  Tables tables{};
  for (AddRows* add_rows : groups) {
    add_rows(tables);
  }
  // A copy may be between two devices.
  tables.metered.copy = metered_copy;
  tables.queued.copy = queued_copy;
  tables.meta.copy = tell_meter_of_copy;
  require_rows("cpu", tables.kernels);
  return tables;
}

}  // namespace stagecoach::cpu
