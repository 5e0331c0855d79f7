#pragma once
/// @file
/// The tensor: a value handle on shared, reference-counted storage. Row-major and always contiguous.

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

/// Copying a Tensor copies the handle: both then name the same elements and the same gradient.
/// A default-made Tensor is undefined; only `defined()` may be asked of it.
class Tensor {
 public:
  Tensor() = default;

  // Making one. `empty` leaves the elements unset.
  static Tensor empty(const Shape& shape, DType dtype = DType::float32, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype = DType::float32, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype = DType::float32, Device device = {});
  /// `empty` in CPU memory of a kind of its own, such as that of core/transfer.h.
  static Tensor empty_in(std::shared_ptr<Allocator> memory, const Shape& shape, DType dtype);
  /// A tensor with a copy of `values`, row by row. Throws unless they are shape.numel() many.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, Device device = {});
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    return from(std::span<const T>(values), shape, device);
  }

  // What it is.
  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  std::int64_t size(int dim) const { return shape()[dim]; }
  int dims() const { return shape().dims(); }
  std::int64_t numel() const { return shape().numel(); }
  std::size_t bytes() const;
  DType dtype() const;
  Device device() const;
  /// True when both handles name the same tensor (not only equal values).
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  /// True when no other handle or view can see the elements, so that writing over them goes unnoticed.
  bool is_donatable() const { return impl_.use_count() == 1 && storage().use_count() == 1; }

  // Its elements. T must be the dtype's type. Taking `mutable_data` counts as a write: it raises the
  // storage's version, so take it anew for each change.
  template <class T>
  const T* data() const;
  template <class T>
  T* mutable_data();
  const void* raw_data() const;
  void* raw_mutable_data();
  /// The single element as a number. Throws unless numel() is 1.
  double item() const;
  /// A copy of the elements. T must be the dtype's type.
  template <class T>
  std::vector<T> to_vector() const;

  // Views: they share the storage. With gradients enabled they are recorded like any operation.
  /// The same elements under another shape; one extent may be -1 and is then worked out.
  Tensor reshape(const Shape& shape) const;
  Tensor reshape(std::initializer_list<std::int64_t> extents) const;
  /// Rows start … start+length-1 of dimension 0: a micro-batch of a batch.
  Tensor narrow(std::int64_t start, std::int64_t length) const;
  /// The same elements without history: a new leaf. Used where a graph is cut at a stage border.
  Tensor detach() const;

  // Copies and writes in place; no gradient flows through them.
  Tensor clone() const;
  /// This tensor if it is on `device` already, or a copy there.
  Tensor to(Device device) const;
  /// The same elements without history, as a tensor of another CPU device: for a rank that hands its memory over to
  /// another one and writes to it no more. Throws unless both devices are CPUs.
  Tensor seen_from(Device device) const;
  /// From any device; throws unless shapes and types agree.
  void copy_from(const Tensor& source);
  void fill(double value);

  // Storage and versions.
  std::uint64_t version() const;
  const std::shared_ptr<Storage>& storage() const;
  /// Elements, not bytes, from the storage's start to this tensor's first element.
  std::int64_t offset() const;
  /// Lets this tensor (every handle on it) name fresh storage that holds the elements of `source`, which
  /// must have the same shape, dtype and device. Graphs that saved the old storage keep it unchanged.
  void rebind(const Tensor& source);
  /// Another shape at another offset of the same storage, without history. The base of all views.
  Tensor alias(const Shape& shape, std::int64_t offset) const;

  // Autograd. A leaf is a tensor that no recorded operation made.
  bool requires_grad() const;
  Tensor& set_requires_grad(bool on);
  bool is_leaf() const { return grad_node() == nullptr; }
  /// The gradient accumulated so far; undefined before the first backward and after zero_grad().
  Tensor grad() const;
  void set_grad(const Tensor& grad);
  void zero_grad() { set_grad({}); }
  /// Calls `hook` in every backward, right after the last contribution to this leaf's gradient.
  void set_gradient_hook(std::function<void(Tensor& leaf)> hook);
  const std::function<void(Tensor& leaf)>& gradient_hook() const;
  const std::shared_ptr<Node>& grad_node() const;
  void set_grad_node(std::shared_ptr<Node> node);
  /// Tells tensors apart in maps; equal for handles on the same tensor.
  const void* id() const { return impl_.get(); }

 private:
  struct Impl;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  static Tensor on(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype);
  Impl& impl() const;

  std::shared_ptr<Impl> impl_;
};

/// "float32[64, 10] on cpu:0", or "undefined".
std::string describe(const Tensor& tensor);

}  // namespace stagecoach
