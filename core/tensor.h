#pragma once
/// @file
/// The tensor: a handle with value semantics to shared, reference-counted storage. Row-major and always contiguous.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "core/storage.h"

namespace stagecoach {

class Node;

/// Copying a Tensor copies the handle: both handles refer to the same elements and the same gradient. A
/// default-constructed Tensor is undefined; only `defined()` may be called on it.
class Tensor {
 public:
  Tensor() = default;

  // Creation. `empty` leaves the elements uninitialised.
  static Tensor empty(const Shape& shape, DType dtype = DType::float32, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype = DType::float32, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype = DType::float32, Device device = {});
  /// Returns an uninitialised CPU tensor in memory of a particular kind, such as the pinned memory of core/transfer.h.
  static Tensor empty_in(std::shared_ptr<Allocator> memory, const Shape& shape, DType dtype);
  /// Returns a tensor with a copy of `values`, in row-major order. Throws Error unless there are shape.numel() values.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, Device device = {});
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    return from(std::span<const T>(values), shape, device);
  }

  // Properties.
  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  std::int64_t size(int dim) const { return shape()[dim]; }
  int dims() const { return shape().dims(); }
  std::int64_t numel() const { return shape().numel(); }
  std::size_t bytes() const;
  DType dtype() const;
  Device device() const;
  /// Returns whether both handles refer to the same tensor (not only to equal values).
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  /// Returns whether no other handle or view refers to the elements, so that they may be overwritten.
  bool is_donatable() const { return impl_.use_count() == 1 && storage().use_count() == 1; }

  // Elements. T must match the dtype. A call of `mutable_data` counts as a write and increments the storage's version,
  // so call it again for each change.
  template <class T>
  const T* data() const;
  template <class T>
  T* mutable_data();
  const void* raw_data() const;
  void* raw_mutable_data();
  /// Returns the single element as a number. Throws Error unless numel() is 1.
  double item() const;
  /// Returns a copy of the elements. T must match the dtype.
  template <class T>
  std::vector<T> to_vector() const;

  // Views share the storage. With gradients enabled they are recorded like any operation.
  /// Returns the same elements in another shape; one extent may be -1 and is then inferred.
  Tensor reshape(const Shape& shape) const;
  Tensor reshape(std::initializer_list<std::int64_t> extents) const;
  /// Returns rows start … start+length-1 of dimension 0, such as a micro-batch of a batch.
  Tensor narrow(std::int64_t start, std::int64_t length) const;
  /// Returns the same elements without history: a new leaf. Used where a graph is cut at a stage boundary.
  Tensor detach() const;

  /// Returns this tensor if it is already on `device`, otherwise a copy there. Recorded like any operation: the
  /// gradient goes back to this tensor's device, so one backward can run through layers on several devices.
  Tensor to(Device device) const;

  // Copies and in-place writes; no gradient flows through them.
  Tensor clone() const;
  /// Returns the same elements without history, as a tensor of another device that shares the memory (shares_memory in
  /// core/transfer.h; otherwise throws Error): for a rank that hands it over to another rank and writes to it no more.
  Tensor seen_from(Device device) const;
  /// Returns the same elements without history, for a queued call to use after this tensor may be gone. Its reads and
  /// writes neither wait nor count as versions of this tensor.
  Tensor borrowed() const;
  /// Copies the elements of `source`, from any device. Throws Error unless shapes and types are equal.
  void copy_from(const Tensor& source);
  void fill(double value);

  // Storage and versions.
  std::uint64_t version() const;
  const std::shared_ptr<Storage>& storage() const;
  /// Returns the distance from the storage's start to this tensor's first element, in elements, not bytes.
  std::int64_t offset() const;
  /// Makes this tensor (every handle to it) refer to new storage that holds the elements of `source`, which must have
  /// the same shape, dtype and device. Graphs that saved the old storage keep it unchanged.
  void rebind(const Tensor& source);
  /// Returns a tensor of another shape at another offset of the same storage, without history. All views are built on
  /// it.
  Tensor alias(const Shape& shape, std::int64_t offset) const;

  // Autograd. A leaf is a tensor that is not the output of a recorded operation.
  bool requires_grad() const;
  Tensor& set_requires_grad(bool on);
  bool is_leaf() const { return grad_node() == nullptr; }
  /// Returns the gradient accumulated so far; undefined before the first backward and after zero_grad().
  Tensor grad() const;
  void set_grad(const Tensor& grad);
  void zero_grad() { set_grad({}); }
  /// Sets a hook that every backward calls right after the last contribution to this leaf's gradient.
  void set_gradient_hook(std::function<void(Tensor& leaf)> hook);
  const std::function<void(Tensor& leaf)>& gradient_hook() const;
  const std::shared_ptr<Node>& grad_node() const;
  void set_grad_node(std::shared_ptr<Node> node);
  /// Returns a key that identifies the tensor in maps; equal for all handles to one tensor.
  const void* id() const { return impl_.get(); }

 private:
  struct Impl;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  static Tensor on(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype, std::int64_t offset = 0);
  Impl& impl() const;

  std::shared_ptr<Impl> impl_;
};

/// Returns a text such as "float32[64, 10] on cpu:0", or "undefined".
std::string describe(const Tensor& tensor);

}  // namespace stagecoach
