#pragma once
/// @file
/// Values that layers find by name, besides their input: more inputs of a model, and values that skip layers. (The
/// layers of a Sequential pass one tensor on.)
///
///     model.add("keep", std::make_shared<Stash>("skip")).add("fc1", …);
///     model.add("sum", std::make_shared<AddStashed>("skip"));
///     const NamedValues values({{"mask", mask}});
///     Tensor y = model.forward(x);

#include <string>
#include <utility>

#include "core/ops.h"
#include "nn/module.h"
#include "nn/named_tensors.h"

namespace stagecoach {

/// The values of the forwards of this thread until the end of the scope. In nested scopes only the innermost ones are
/// found.
class NamedValues {
 public:
  explicit NamedValues(NamedTensors values = {});
  ~NamedValues() { current_ = outer_; }
  NamedValues(const NamedValues&) = delete;
  NamedValues& operator=(const NamedValues&) = delete;

  /// Returns all values; none outside of a scope.
  static NamedTensors all();
  /// Returns the value `name`. Throws Error, naming the values that there are, if there is none.
  static Tensor get(const std::string& name);
  /// Adds a value, or replaces the one of that name. Throws Error outside of a scope.
  static void put(const std::string& name, const Tensor& value);

 private:
  NamedTensors values_;
  NamedValues* outer_;
  static inline thread_local NamedValues* current_ = nullptr;
};

/// Returns its input, and keeps it under a name for a later layer, or for the loss if no layer takes it.
class Stash final : public Module {
 public:
  explicit Stash(std::string name) : name_(std::move(name)) {}
  Tensor forward(const Tensor& x) override {
    NamedValues::put(name_, x);
    return x;
  }
  Shape output_shape(const Shape& input) const override { return input; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// The base of layers that take what an earlier Stash has kept. Both must be layers of the model's Sequential itself
/// for the value to skip stages of a pipeline.
class Unstash : public Module {
 public:
  explicit Unstash(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }

 protected:
  Tensor stashed() const { return NamedValues::get(name_); }

 private:
  std::string name_;
};

/// Adds the kept value to its input, of the same shape.
class AddStashed final : public Unstash {
 public:
  using Unstash::Unstash;
  Tensor forward(const Tensor& x) override { return add(x, stashed()); }
  Shape output_shape(const Shape& input) const override { return input; }
};

}  // namespace stagecoach
