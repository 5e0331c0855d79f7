#pragma once
/// @file
/// The oracle of tensor parallelism: one device that has whole layers, but computes them slice by slice, and adds the
/// slices' results in the order of the slices. Its parameters and gradients equal those of as many tensor-parallel
/// ranks bit for bit. Those of whole layers differ in the last bits, since they add up the same products in another
/// order.

#include "nn/layer_factory.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"

namespace stagecoach {

class SlicedLayers final : public LayerFactory {
 public:
  explicit SlicedLayers(int slices, SequenceParallel sequence = SequenceParallel::no,
                        ClassParallel classes = ClassParallel::no)
      : slices_(slices), sequence_(sequence), classes_(classes) {}

  bool cuts_classes() const override { return classes_ == ClassParallel::yes; }
  // They throw UsageError as TensorParallelLayers does.
  std::shared_ptr<Module> conv2d(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, Cut cut,
                                 const Conv2dSettings& settings) const override;
  std::int64_t heads(std::int64_t all) const override;
  std::shared_ptr<Module> token_norm(std::int64_t width) const override;

 private:
  std::shared_ptr<Module> make_linear(std::int64_t inputs, std::int64_t outputs, Cut cut, int sections,
                                      const LinearInit& init) const override;
  std::shared_ptr<Module> make_linear_by_classes(std::int64_t inputs, std::int64_t classes,
                                                 const LinearInit& init) const override;

  int slices_;
  SequenceParallel sequence_;
  ClassParallel classes_;
};

}  // namespace stagecoach
