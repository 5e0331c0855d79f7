#include "core/tensor.h"

#include <algorithm>

#include "core/asynchronous.h"
#include "core/autograd/node.h"
#include "core/base/recycled.h"
#include "core/kernel_meter.h"
#include "core/kernels/kernels.h"
#include "core/stream_order.h"
#include "core/transfer.h"

namespace stagecoach {

struct Tensor::Impl {
  std::shared_ptr<Storage> storage;
  Shape shape;
  std::int64_t offset = 0;  // in elements
  DType dtype = DType::float32;

  bool requires_grad = false;
  Tensor grad = {};
  std::shared_ptr<Node> grad_node = {};
  std::function<void(Tensor&)> hook = {};

  void* address() const {
    return static_cast<char*>(storage->data()) + static_cast<std::size_t>(offset) * size_of(dtype);
  }
};

namespace {

std::size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<std::size_t>(shape.numel()) * size_of(dtype);
}

void require_elements(const Tensor& tensor) {
  STAGECOACH_CHECK(tensor.device().type != DeviceType::meta,
                   "tensor: {} has no elements; compute on another device to get values", describe(tensor));
}

/// Waits for the queued calls that write the elements, before they are read; before they are written, for all.
void wait_for_calls(const Tensor& tensor, bool before_write) {
  if (is_asynchronous(tensor.device())) {
    wait_for_uses(*tensor.storage()->block(), before_write);
  }
}

}  // namespace

Tensor::Impl& Tensor::impl() const {
  STAGECOACH_CHECK(impl_ != nullptr, "tensor: expected a defined tensor, got an undefined one");
  return *impl_;
}

Tensor Tensor::on(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype, std::int64_t offset) {
  return Tensor(std::make_shared<Impl>(std::move(storage), shape, offset, dtype));
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  return on(std::make_shared<Storage>(bytes_of(shape, dtype), device), shape, dtype);
}

Tensor Tensor::empty_in(std::shared_ptr<Allocator> memory, const Shape& shape, DType dtype) {
  return on(std::make_shared<Storage>(bytes_of(shape, dtype), Device{}, std::move(memory)), shape, dtype);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0, dtype, device); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill(value);
  return tensor;
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape, Device device) {
  STAGECOACH_CHECK(static_cast<std::int64_t>(values.size()) == shape.numel(),
                   "tensor: expected {} values for shape {}, got {}", shape.numel(), to_string(shape), values.size());
  Tensor tensor = empty(shape, dtype_of<T>, Device{});
  std::copy(values.begin(), values.end(), tensor.mutable_data<T>());
  return device == Device{} ? tensor : tensor.to(device);
}

const Shape& Tensor::shape() const { return impl().shape; }
std::size_t Tensor::bytes() const { return bytes_of(shape(), dtype()); }
DType Tensor::dtype() const { return impl().dtype; }
Device Tensor::device() const { return impl().storage->device(); }

const void* Tensor::raw_data() const {
  require_elements(*this);
  wait_for_calls(*this, false);
  return impl().address();
}

void* Tensor::raw_mutable_data() {
  require_elements(*this);
  wait_for_calls(*this, true);
  impl().storage->bump_version();
  return impl().address();
}

template <class T>
const T* Tensor::data() const {
  STAGECOACH_CHECK(dtype() == dtype_of<T>, "tensor: data() expected type {}, got {}", name_of(dtype_of<T>),
                   describe(*this));
  return static_cast<const T*>(raw_data());
}

template <class T>
T* Tensor::mutable_data() {
  STAGECOACH_CHECK(dtype() == dtype_of<T>, "tensor: mutable_data() expected type {}, got {}", name_of(dtype_of<T>),
                   describe(*this));
  return static_cast<T*>(raw_mutable_data());
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  if (KernelMeter* meter = KernelMeter::current()) {
    meter->wait_for(device());
  }
  // A CPU's memory needs no copy, which one rank would make and another, whose device this is, would not.
  const bool is_near = device().type == DeviceType::cpu && !is_asynchronous(device());
  const Tensor here = is_near ? seen_from(Device{}) : detach().to(Device{});
  const T* values = here.data<T>();
  return {values, values + numel()};
}

double Tensor::item() const {
  STAGECOACH_CHECK(numel() == 1, "tensor: item() expected one element, got {}", describe(*this));
  switch (dtype()) {
    case DType::float32:
      return to_vector<float>()[0];
    case DType::float64:
      return to_vector<double>()[0];
    case DType::int32:
      return to_vector<std::int32_t>()[0];
    case DType::uint8:
      return to_vector<std::uint8_t>()[0];
    case DType::float16:
      return to_float(to_vector<Half>()[0]);
  }
  fail("item: unknown dtype");
}

Tensor Tensor::detach() const { return alias(shape(), offset()); }

Tensor Tensor::clone() const {
  Tensor copy = empty(shape(), dtype(), device());
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::borrowed() const {
  const Storage& mine = *storage();
  auto same = std::allocate_shared<Storage>(Recycled<Storage>(), mine.block(), mine.bytes(), mine.device());
  return Tensor(std::allocate_shared<Impl>(Recycled<Impl>(), std::move(same), shape(), offset(), dtype()));
}

Tensor Tensor::seen_from(Device device) const {
  STAGECOACH_CHECK(shares_memory(this->device(), device),
                   "seen_from: expected two CPUs or slots of a GPU, got {} from {}", describe(*this),
                   to_string(device));
  wait_for_calls(*this, true);
  return on(std::make_shared<Storage>(storage(), device), shape(), dtype(), offset());
}

void Tensor::copy_from(const Tensor& source) {
  STAGECOACH_CHECK(shape() == source.shape() && dtype() == source.dtype(),
                   "copy: expected equal shapes and types, got {} to {}", describe(source), describe(*this));
  if (device().type != DeviceType::meta) {
    require_elements(source);
  }
  const bool moves_here =
      device().type != DeviceType::cpu || (is_asynchronous(device()) && source.device().type != DeviceType::cuda);
  kernels(moves_here ? device() : source.device()).copy(source, *this);
}

void Tensor::fill(double value) { kernels(device()).fill(value, *this); }

std::uint64_t Tensor::version() const { return impl().storage->version(); }
const std::shared_ptr<Storage>& Tensor::storage() const { return impl().storage; }
std::int64_t Tensor::offset() const { return impl().offset; }

void Tensor::rebind(const Tensor& source) {
  STAGECOACH_CHECK(shape() == source.shape() && dtype() == source.dtype() && device() == source.device(),
                   "rebind: expected equal shapes, types and devices, got {} to {}", describe(*this), describe(source));
  impl().storage = source.impl().storage;
  impl().offset = source.impl().offset;
}

Tensor Tensor::alias(const Shape& shape, std::int64_t offset) const {
  const Impl& self = impl();
  const auto held = static_cast<std::int64_t>(self.storage->bytes() / size_of(self.dtype));  // elements
  STAGECOACH_CHECK(offset >= 0 && offset <= held && shape.numel() <= held - offset,
                   "alias: shape {} at offset {} exceeds the storage of {}", to_string(shape), offset, describe(*this));
  return on(self.storage, shape, self.dtype, offset);
}

bool Tensor::requires_grad() const { return impl().requires_grad || impl().grad_node != nullptr; }

Tensor& Tensor::set_requires_grad(bool on) {
  STAGECOACH_CHECK(is_leaf(),
                   "tensor: requires_grad expected a leaf, got the result of an operation; call detach() first");
  STAGECOACH_CHECK(!on || dtype() == DType::float32 || dtype() == DType::float64,
                   "tensor: requires_grad expected a floating type, got {}", describe(*this));
  impl().requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const { return impl().grad; }

void Tensor::set_grad(const Tensor& grad) {
  STAGECOACH_CHECK(!grad.defined() || (grad.shape() == shape() && grad.dtype() == dtype() && grad.device() == device()),
                   "tensor: expected a gradient of the tensor's shape, type and device, got {} for {}", describe(grad),
                   describe(*this));
  impl().grad = grad;
}

void Tensor::set_gradient_hook(std::function<void(Tensor&)> hook) { impl().hook = std::move(hook); }
const std::function<void(Tensor&)>& Tensor::gradient_hook() const { return impl().hook; }
const std::shared_ptr<Node>& Tensor::grad_node() const { return impl().grad_node; }
void Tensor::set_grad_node(std::shared_ptr<Node> node) { impl().grad_node = std::move(node); }

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) {
    return "undefined";
  }
  return fmt::format("{}{} on {}", name_of(tensor.dtype()), to_string(tensor.shape()), to_string(tensor.device()));
}

#define STAGECOACH_INSTANTIATE(T)                                            \
  template Tensor Tensor::from<T>(std::span<const T>, const Shape&, Device); \
  template const T* Tensor::data<T>() const;                                 \
  template T* Tensor::mutable_data<T>();                                     \
  template std::vector<T> Tensor::to_vector<T>() const;
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
STAGECOACH_INSTANTIATE(std::int32_t)
STAGECOACH_INSTANTIATE(std::uint8_t)
STAGECOACH_INSTANTIATE(Half)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach
