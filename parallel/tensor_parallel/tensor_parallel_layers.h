#pragma once
/// @file
/// Tensor parallelism: the layers of a model, each cut over the ranks of a group.
///
/// A layer cut by outputs computes a slice of its features from an input that all ranks have. A layer cut by inputs
/// takes such a slice and adds up what the ranks have computed, so that all ranks have its result. A pair of them costs
/// one all-reduce in the forward and one in the backward; each rank holds 1 / ranks of their weights. Source: Shoeybi
/// et al., "Megatron-LM", 2019, section 3.
///
/// With sequence parallelism, ranks share the tokens where they would otherwise all compute the same: in the norms and
/// additions between the pairs. Each all-reduce becomes a reduce-scatter and an all-gather, which send as many bytes.
/// The gradients of the norms' weights are summed over the ranks. Source: Korthikanti et al., "Reducing activation
/// recomputation in large transformer models", 2022, section 4.2.2.

#include <memory>
#include <utility>
#include <vector>

#include "nn/layer_factory.h"
#include "parallel/tensor_parallel/tensor_group.h"

namespace stagecoach {

enum class SequenceParallel { no, yes };
/// Whether the last layer is cut by classes; the loss is then class_parallel_loss.
enum class ClassParallel { no, yes };

/// Makes this rank's slices of the layers. They begin with the values that they would have on one device.
class TensorParallelLayers final : public LayerFactory {
 public:
  /// `comm` must outlive the layers. All ranks of the group run their layers together, forward and backward. A
  /// `comm_thread` of the same ranks sums the gradients of inputs while the weights' are computed (see overlap.h); with
  /// sequence parallelism it has nothing to do.
  explicit TensorParallelLayers(Communicator& comm, SequenceParallel sequence = SequenceParallel::no,
                                ClassParallel classes = ClassParallel::no, CommThread* comm_thread = nullptr)
      : group_{.ranks = comm.size(), .rank = comm.rank(), .comm = &comm, .comm_thread = comm_thread},
        sequence_(sequence),
        classes_(classes) {}
  /// For plans: makes layers of rank 0 of `ranks`, which run alone (see conjugate.h). While they compute their output
  /// shapes, they add to `exchanges` what they would exchange; null: nothing. `plans_overlap`: they do the work of
  /// those with a CommThread.
  explicit TensorParallelLayers(int ranks, SequenceParallel sequence = SequenceParallel::no,
                                ClassParallel classes = ClassParallel::no,
                                std::shared_ptr<std::vector<Exchange>> exchanges = nullptr, bool plans_overlap = false)
      : group_{.ranks = ranks, .exchanges = std::move(exchanges), .plans_overlap = plans_overlap},
        sequence_(sequence),
        classes_(classes) {}

  bool cuts_classes() const override { return classes_ == ClassParallel::yes; }
  // They throw UsageError for features, channels, heads, tokens or classes that the ranks cannot share equally.
  std::shared_ptr<Module> conv2d(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, Cut cut,
                                 const Conv2dSettings& settings) const override;
  std::int64_t heads(std::int64_t all) const override;
  std::shared_ptr<Module> patch_embedding(std::int64_t image_size, std::int64_t patch,
                                          std::int64_t width) const override;
  std::shared_ptr<Module> token_norm(std::int64_t width) const override;
  std::shared_ptr<Module> token_mean() const override;

 private:
  std::shared_ptr<Module> make_linear(std::int64_t inputs, std::int64_t outputs, Cut cut, int sections,
                                      const LinearInit& init) const override;
  std::shared_ptr<Module> make_linear_by_classes(std::int64_t inputs, std::int64_t classes,
                                                 const LinearInit& init) const override;

  TensorGroup group_;
  SequenceParallel sequence_;
  ClassParallel classes_;
};

}  // namespace stagecoach
