#pragma once
/// @file
/// A module: a part of a model, with named parameters, buffers and children.
///
/// It is made without memory. `materialize` allocates and fills it, number by number from (seed, full name,
/// index), so a model that is cut into stages starts with the very weights that one device would give it.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "nn/named_tensors.h"

namespace stagecoach {

/// How the elements of a new parameter or buffer are chosen.
class Init {
 public:
  static Init constant(double value) { return {value, value}; }
  /// Uniform on [-bound, bound).
  static Init uniform(double bound) { return {-bound, bound}; }
  /// A CPU tensor of float32 or float64 whose elements depend on (seed, name, index) alone.
  Tensor make(const Shape& shape, DType dtype, std::uint64_t seed, const std::string& name) const;

 private:
  Init(double low, double high) : low_(low), high_(high) {}
  double low_;
  double high_;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// The output for input x. Throws Error while the module has no memory.
  virtual Tensor forward(const Tensor& x) = 0;
  /// The shape of forward's output for an input of shape `input`. Needs no memory, computes nothing. Throws Error for
  /// an input that forward refuses because of its shape; that of a Sequential names the layer. (That batch norm needs
  /// more than one value per channel in training is a matter of the batch: only forward refuses it.)
  virtual Shape output_shape(const Shape& input) const = 0;

  /// Allocates all parameters and buffers and fills them. Parameters then require gradients.
  /// @param prefix the name of this module in the whole model, with a dot after it; empty for the root and
  ///               for slices of a root Sequential, whose layers keep their names.
  /// Throws Error when a part has memory already: optimizers may hold its tensors.
  void materialize(std::uint64_t seed, Device device = {}, DType dtype = DType::float32,
                   const std::string& prefix = "");

  /// Drops all parameters and buffers: the module is without memory again, as when it was made.
  void deallocate();

  /// All parameters (or buffers: tensors that training updates without gradients), in registration order, own
  /// ones before those of children, under full dotted names: "conv1.weight". Throws Error without memory.
  NamedTensors named_parameters(const std::string& prefix = "") const;
  NamedTensors named_buffers(const std::string& prefix = "") const;

  /// The shapes of the same parameters in the same order, with or without memory.
  std::vector<Shape> parameter_shapes() const;

  /// Training (the default) or evaluation, for this module and all below it.
  void train(bool on = true);
  bool is_training() const { return training_; }

  using Child = std::pair<std::string, std::shared_ptr<Module>>;
  const std::vector<Child>& children() const { return children_; }

  /// The trainable numbers of a module, whether or not it has memory.
  friend std::int64_t parameter_count(const Module& module);

 protected:
  /// Each name may be given once in a module.
  void add_parameter(const std::string& name, const Shape& shape, const Init& init);
  void add_buffer(const std::string& name, const Shape& shape, const Init& init);
  void add_child(const std::string& name, std::shared_ptr<Module> child);
  /// This module's own parameter or buffer. Throws Error while it has no memory.
  const Tensor& own(const std::string& name) const;
  /// Its shape, with or without memory.
  const Shape& own_shape(const std::string& name) const { return slot(name).shape; }

 private:
  enum class Role { parameter, buffer };
  struct Slot {
    std::string name;
    Role role;
    Shape shape;
    Init init;
    Tensor tensor;  // undefined until materialize
  };
  void add_slot(Slot slot);
  const Slot& slot(const std::string& name) const;
  void require_new_name(const std::string& name) const;
  bool has_memory() const;
  void allocate(std::uint64_t seed, Device device, DType dtype, const std::string& prefix);
  void collect(Role role, const std::string& prefix, NamedTensors& found) const;

  std::vector<Slot> slots_;
  std::vector<Child> children_;
  bool training_ = true;
};

}  // namespace stagecoach
