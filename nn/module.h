#pragma once
/// @file
/// A module: a part of a model, with named parameters, buffers and children.
///
/// A new module has no memory. `materialize` allocates and initialises it; each element depends only on (seed, full
/// name, index), so a model that is split into stages starts with the same weights as on one device.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "nn/named_tensors.h"
#include "nn/tensor_slice.h"

namespace stagecoach {

/// The rule for the initial values of a parameter or buffer.
class Init {
 public:
  static Init constant(double value) { return {value, value}; }
  /// Draws uniformly from [-bound, bound).
  static Init uniform(double bound) { return {-bound, bound}; }
  /// Draws from the normal distribution with mean 0.
  static Init normal(double deviation) { return {0, deviation, true}; }
  /// Returns a CPU tensor of float32 or float64 whose elements depend only on (seed, name, index).
  Tensor make(const Shape& shape, DType dtype, std::uint64_t seed, const std::string& name) const;
  /// Returns the same elements of a slice, without the memory of the whole tensor.
  Tensor make(const TensorSlice& slice, DType dtype, std::uint64_t seed, const std::string& name) const;

 private:
  Init(double low, double high, bool normal = false) : low_(low), high_(high), normal_(normal) {}
  double low_;
  double high_;
  bool normal_;  // high_ is then the deviation
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Returns the output for input x. Throws Error while the module has no memory.
  virtual Tensor forward(const Tensor& x) = 0;
  /// Returns the shape of forward's output for an input of shape `input`. Needs no memory and computes nothing. Throws
  /// Error for an input whose shape forward does not accept; a Sequential names the layer. (Only forward checks that
  /// batch norm gets more than one value per channel in training.)
  virtual Shape output_shape(const Shape& input) const = 0;

  /// Allocates and initialises all parameters and buffers. Parameters then require gradients.
  /// @param prefix the name of this module in the whole model, followed by a dot; empty for the root and
  ///               for slices of a root Sequential, whose layers keep their names.
  /// Throws Error if any part has memory already: optimizers may hold its tensors; and, on a CPU, before anything is
  /// allocated if the parameters do not fit in the available memory.
  void materialize(std::uint64_t seed, Device device = {}, DType dtype = DType::float32,
                   const std::string& prefix = "");

  /// Drops all parameters and buffers, so that the module has no memory, as after its construction.
  void deallocate();

  /// Returns all parameters (or buffers: tensors that training updates without gradients) under full dotted names such
  /// as "conv1.weight", in registration order, the module's own before its children's. Throws Error while the module
  /// has no memory.
  NamedTensors named_parameters(const std::string& prefix = "") const;
  NamedTensors named_buffers(const std::string& prefix = "") const;

  /// Returns the slices of those parameters of which the module has only a slice, under the same names, with or without
  /// memory.
  NamedSlices named_slices(const std::string& prefix = "") const;

  /// Returns the names and shapes of the same parameters in the same order, with or without memory.
  std::vector<std::pair<std::string, Shape>> parameter_shapes() const;

  /// Switches this module and all its descendants to training (the default) or evaluation.
  void train(bool on = true);
  bool is_training() const { return training_; }

  using Child = std::pair<std::string, std::shared_ptr<Module>>;
  const std::vector<Child>& children() const { return children_; }

 protected:
  /// Registers a part under a name that is unique in this module.
  void add_parameter(const std::string& name, const Shape& shape, const Init& init);
  /// Registers a slice of a parameter whose other slices are on other ranks. It begins with the values that it would
  /// have on one device.
  void add_parameter(const std::string& name, const TensorSlice& slice, const Init& init);
  void add_buffer(const std::string& name, const Shape& shape, const Init& init);
  void add_child(const std::string& name, std::shared_ptr<Module> child);
  /// Returns this module's own parameter or buffer. Throws Error while the module has no memory.
  const Tensor& own(const std::string& name) const;
  /// Returns the shape of this module's own parameter or buffer, with or without memory.
  const Shape& own_shape(const std::string& name) const { return slot(name).shape; }

 private:
  enum class Role { parameter, buffer };
  struct Slot {
    std::string name;
    Role role;
    Shape shape;
    Init init;
    std::optional<TensorSlice> slice = {};  // if the tensor is one
    Tensor tensor = {};                     // undefined until materialize
  };
  void add_slot(Slot slot);
  const Slot& slot(const std::string& name) const;
  void require_new_name(const std::string& name) const;
  bool has_memory() const;
  NamedTensors named_tensors(Role role, const std::string& prefix) const;
  /// Calls visit(slot, full name) for each slot of `root` and its descendants, a module's own before its children's.
  template <class AnyModule, class Visit>
  static void for_each_slot(AnyModule& root, const std::string& prefix, const Visit& visit);

  std::vector<Slot> slots_;
  std::vector<Child> children_;
  bool training_ = true;
};

/// Returns the number of trainable elements of a module, with or without memory.
std::int64_t parameter_count(const Module& module);

}  // namespace stagecoach
