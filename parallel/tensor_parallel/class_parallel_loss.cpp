#include "parallel/tensor_parallel/class_parallel_loss.h"

#include <limits>
#include <vector>

#include "core/base/phrases.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

/// The slices of the classes that are here, side by side: all of them, or a rank's own.
struct SlicesHere {
  int count = 1;
  std::int64_t first = 0;    // class
  std::int64_t classes = 0;  // here and elsewhere
};

/// Returns slice `index` of the logits [N, C], [N, C / slices].
Tensor slice_of(const Tensor& logits, int index, int slices) {
  const std::int64_t width = logits.size(1) / slices;
  Tensor slice = empty_like(logits, {logits.size(0), width});
  kernels(logits.device()).copy_columns(logits, index * width, 0, width, slice);
  return slice;
}

class ClassParallelNode final : public Node {
 public:
  ClassParallelNode(const Tensor& logits, const Tensor& labels, const Tensor& normalizers, const SlicesHere& here)
      : Node("class_parallel_loss", {logits}), here_(here) {
    save("logits", logits);
    save("labels", labels);
    save("normalizers", normalizers);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    const Tensor logits = saved("logits");
    const std::int64_t width = logits.size(1) / here_.count;
    Tensor grad_logits = empty_like(logits, logits.shape());
    Tensor grad_slice = empty_like(logits, {logits.size(0), width});
    const Kernels& on = kernels(logits.device());
    for (int i = 0; i < here_.count; ++i) {
      on.class_slice_grad(grad, slice_of(logits, i, here_.count), saved("labels"), saved("normalizers"),
                          here_.first + i * width, 1, grad_slice);
      on.copy_columns(grad_slice, 0, i * width, width, grad_logits);
    }
    return {grad_logits};
  }

 private:
  SlicesHere here_;
};

void check_inputs(const Tensor& logits, const Tensor& labels, const SlicesHere& here) {
  STAGECOACH_CHECK(logits.dims() == 2 && labels.shape() == Shape{logits.size(0)} && logits.size(1) > 0 &&
                       logits.size(1) % here.count == 0,
                   "class-parallel loss: expected logits [N, C] and labels [N], with C in {}, got {} "
                   "and {}",
                   counted(here.count, "equal slice"), describe(logits), describe(labels));
  STAGECOACH_CHECK(labels.dtype() == DType::int32 && labels.device() == logits.device(),
                   "class-parallel loss: expected int32 labels on the device of the logits, got {} and {}",
                   describe(labels), describe(logits));
  constexpr std::int64_t kMaxClasses = std::int64_t{1} << std::numeric_limits<float>::digits;
  STAGECOACH_CHECK(here.classes <= kMaxClasses,
                   "class-parallel loss: expected at most {} classes, whose numbers a float can hold, got {}",
                   kMaxClasses, here.classes);
}

/// Returns this device's statistics, [slices N, 4].
Tensor statistics_of(const Tensor& logits, const Tensor& labels, const SlicesHere& here) {
  std::vector<Tensor> statistics;
  for (int i = 0; i < here.count; ++i) {
    const Tensor slice = slice_of(logits, i, here.count);
    statistics.push_back(empty_like(logits, {logits.size(0), kClassStatistics}));
    kernels(logits.device())
        .class_statistics(slice, labels, here.first + i * slice.size(1), here.classes, statistics.back());
  }
  return cat(statistics);
}

/// Returns the loss from the statistics of all slices, [slices N, 4].
Tensor combined(const Tensor& statistics, const Tensor& logits, const Tensor& labels, const SlicesHere& here,
                Tensor* predictions) {
  const std::int64_t samples = logits.size(0);
  const std::int64_t slices = here.classes / (logits.size(1) / here.count);
  Tensor loss = empty_like(logits, Shape{});
  Tensor normalizers = empty_like(logits, {samples, 2});
  Tensor classes = Tensor::empty({samples}, DType::int32, logits.device());
  kernels(logits.device())
      .combined_cross_entropy(statistics.reshape({slices, samples, kClassStatistics}), 1, loss, normalizers, classes);
  if (predictions != nullptr) {
    *predictions = classes;
  }
  return recorded<ClassParallelNode>(loss, {&logits}, logits, labels, normalizers, here);
}

}  // namespace

LossFunction class_parallel_loss(const TensorGroup& group) {
  return [group](const Tensor& logits, const Tensor& labels, Tensor* predictions) {
    const Span span("class_parallel_loss", "forward");
    const SlicesHere here{1, group.rank * logits.size(1), group.ranks * logits.size(1)};
    check_inputs(logits, labels, here);
    const Tensor mine = statistics_of(logits, labels, here);
    return combined(cat(group.comm->all_gather(mine)), logits, labels, here, predictions);
  };
}

LossFunction sliced_class_loss(int slices) {
  return [slices](const Tensor& logits, const Tensor& labels, Tensor* predictions) {
    const Span span("class_parallel_loss", "forward");
    const SlicesHere here{slices, 0, logits.size(1)};
    check_inputs(logits, labels, here);
    return combined(statistics_of(logits, labels, here), logits, labels, here, predictions);
  };
}

}  // namespace stagecoach
