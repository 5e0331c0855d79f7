#include "nn/module.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/memory_limits.h"
#include "core/base/throw_if.h"
#include "core/random.h"

namespace stagecoach {
namespace {

void require_memory(const Tensor& tensor, const std::string& name) {
  STAGECOACH_CHECK(
      tensor.defined(),
      "module: '{}' has no memory yet; call materialize(seed) on the model first, or place(shape) on its Pipe", name);
}

/// Throws Error if the memory of this machine cannot hold `count` values. Systems that promise any amount of memory
/// would kill the process later.
void require_memory_for_weights(std::int64_t count, DType dtype) {
  const std::uint64_t needed = static_cast<std::uint64_t>(count) * size_of(dtype);
  const std::uint64_t available = available_memory();
  throw_if<Error>(needed > available,
                  "module: its weights need {} bytes, {} are available; use a smaller model, or more ranks on "
                  "more machines",
                  needed, available);
}

}  // namespace

Tensor Init::make(const Shape& shape, DType dtype, std::uint64_t seed, const std::string& name) const {
  return make(TensorSlice{.whole = shape}, dtype, seed, name);
}

Tensor Init::make(const TensorSlice& slice, DType dtype, std::uint64_t seed, const std::string& name) const {
  if (low_ == high_) {
    return Tensor::full(slice.shape(), low_, dtype);
  }
  Tensor tensor = Tensor::empty(slice.shape(), dtype);
  const Philox random(seed, name);
  UniformNumbers numbers(random);
  dispatch_floating(dtype, "init", [&]<class T>() {
    T* values = tensor.mutable_data<T>();
    const std::int64_t count = tensor.numel();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<std::uint64_t>(slice.index_in_whole(i));
      values[i] = static_cast<T>(normal_ ? high_ * random.normal(index) : low_ + (high_ - low_) * numbers[index]);
    }
  });
  return tensor;
}

template <class AnyModule, class Visit>
void Module::for_each_slot(AnyModule& root, const std::string& prefix, const Visit& visit) {
  for (auto& slot : root.slots_) {
    visit(slot, prefix + slot.name);
  }
  for (const auto& [name, child] : root.children_) {
    for_each_slot<AnyModule>(*child, prefix + name + ".", visit);
  }
}

void Module::materialize(std::uint64_t seed, Device device, DType dtype, const std::string& prefix) {
  // Checked before anything is allocated, so that an error changes nothing.
  STAGECOACH_CHECK(!has_memory(), "module: part of '{}' already has memory; create a new model instead", prefix);
  if (device.type == DeviceType::cpu) {
    require_memory_for_weights(parameter_count(*this), dtype);
  }
  for_each_slot(*this, prefix, [&](Slot& slot, const std::string& name) {
    const TensorSlice slice = slot.slice.value_or(TensorSlice{.whole = slot.shape});
    slot.tensor = device.type == DeviceType::meta ? Tensor::empty(slice.shape(), dtype, device)
                                                  : slot.init.make(slice, dtype, seed, name).to(device);
    slot.tensor.set_requires_grad(slot.role == Role::parameter);
  });
}

void Module::deallocate() {  // without for_each_slot: destructors call it, and full names need memory
  for (Slot& slot : slots_) {
    slot.tensor = {};
  }
  for (const auto& [name, child] : children_) {
    child->deallocate();
  }
}

std::vector<std::pair<std::string, Shape>> Module::parameter_shapes() const {
  std::vector<std::pair<std::string, Shape>> shapes;
  for_each_slot(*this, "", [&](const Slot& slot, const std::string& name) {
    if (slot.role == Role::parameter) {
      shapes.emplace_back(name, slot.shape);
    }
  });
  return shapes;
}

NamedTensors Module::named_parameters(const std::string& prefix) const {
  return named_tensors(Role::parameter, prefix);
}

NamedTensors Module::named_buffers(const std::string& prefix) const { return named_tensors(Role::buffer, prefix); }

NamedSlices Module::named_slices(const std::string& prefix) const {
  NamedSlices found;
  for_each_slot(*this, prefix, [&](const Slot& slot, const std::string& name) {
    if (slot.slice) {
      found.emplace_back(name, *slot.slice);
    }
  });
  return found;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) {
    child->train(on);
  }
}

std::int64_t parameter_count(const Module& module) {
  std::int64_t count = 0;
  for (const auto& [name, shape] : module.parameter_shapes()) {
    count += shape.numel();
  }
  return count;
}

void Module::add_parameter(const std::string& name, const Shape& shape, const Init& init) {
  add_slot({name, Role::parameter, shape, init});
}

void Module::add_parameter(const std::string& name, const TensorSlice& slice, const Init& init) {
  add_slot({name, Role::parameter, slice.shape(), init, slice});
}

void Module::add_buffer(const std::string& name, const Shape& shape, const Init& init) {
  add_slot({name, Role::buffer, shape, init});
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> child) {
  STAGECOACH_CHECK(child != nullptr, "module: expected a child for '{}', got null", name);
  require_new_name(name);
  children_.emplace_back(name, std::move(child));
}

const Tensor& Module::own(const std::string& name) const {
  const Tensor& tensor = slot(name).tensor;
  require_memory(tensor, name);
  return tensor;
}

const Module::Slot& Module::slot(const std::string& name) const {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.name == name; });
  STAGECOACH_CHECK(found != slots_.end(), "module: no parameter or buffer is named '{}'", name);
  return *found;
}

void Module::add_slot(Slot slot) {
  require_new_name(slot.name);
  slots_.push_back(std::move(slot));
}

void Module::require_new_name(const std::string& name) const {
  const bool taken =
      std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.name == name; }) ||
      std::any_of(children_.begin(), children_.end(), [&](const Child& child) { return child.first == name; });
  STAGECOACH_CHECK(!name.empty() && !taken, "module: the name '{}' is {}; choose another", name,
                   taken ? "taken" : "empty");
}

bool Module::has_memory() const {
  bool found = false;
  for_each_slot(*this, "", [&](const Slot& slot, const std::string&) { found = found || slot.tensor.defined(); });
  return found;
}

NamedTensors Module::named_tensors(Role role, const std::string& prefix) const {
  NamedTensors found;
  for_each_slot(*this, prefix, [&](const Slot& slot, const std::string& name) {
    if (slot.role == role) {
      require_memory(slot.tensor, name);
      found.emplace_back(name, slot.tensor);
    }
  });
  return found;
}

}  // namespace stagecoach
