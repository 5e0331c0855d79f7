#include "parallel/tensor_parallel/class_parallel_loss.h"

#include <functional>
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

/// Returns slice `index` of the logits [rows, C], [rows, C / slices].
Tensor slice_of(const Tensor& logits, int index, int slices) {
  const std::int64_t width = logits.size(1) / slices;
  Tensor slice = empty_like(logits, {logits.size(0), width});
  kernels(logits.device()).copy_columns(logits, index * width, 0, width, slice);
  return slice;
}

class ClassParallelNode final : public Node {
 public:
  ClassParallelNode(const Tensor& logits, const Tensor& labels, const Tensor& normalizers, double factor,
                    const SlicesHere& here)
      : Node("class_parallel_loss", {logits}), factor_(factor), here_(here) {
    save("logits", logits);
    save("labels", labels);
    save("normalizers", normalizers);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    const Tensor logits = as_rows(saved("logits"));
    const std::int64_t width = logits.size(1) / here_.count;
    Tensor grad_logits = empty_like(logits, saved("logits").shape());
    Tensor rows = as_rows(grad_logits);
    Tensor grad_slice = empty_like(logits, {logits.size(0), width});
    const Kernels& on = kernels(logits.device());
    for (int i = 0; i < here_.count; ++i) {
      on.class_slice_grad(grad, slice_of(logits, i, here_.count), saved("labels"), saved("normalizers"),
                          here_.first + i * width, factor_, grad_slice);
      on.copy_columns(grad_slice, 0, i * width, width, rows);
    }
    return {grad_logits};
  }

 private:
  double factor_;
  SlicesHere here_;
};

/// Returns the labels of the rows. Throws Error for tensors that do not match.
Tensor checked_labels(const Tensor& logits, const Tensor& labels, const SlicesHere& here) {
  STAGECOACH_CHECK(logits.dims() >= 2 && logits.size(-1) % here.count == 0,
                   "class-parallel loss: expected logits [N, …, C], with C in {}, got {}",
                   counted(here.count, "equal slice"), describe(logits));
  constexpr std::int64_t kMaxClasses = std::int64_t{1} << std::numeric_limits<float>::digits;
  STAGECOACH_CHECK(here.classes <= kMaxClasses,
                   "class-parallel loss: expected at most {} classes, whose numbers a float can hold, got {}",
                   kMaxClasses, here.classes);
  return labels_of_rows("class-parallel loss", logits, labels);
}

/// Returns this device's statistics, [slices rows, 4], of logits [rows, C].
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

/// Returns the loss, given how to get the statistics of all slices from those of the slices here.
Tensor loss_from(const Tensor& logits, const Tensor& labels, const SlicesHere& here, Tensor* predictions,
                 const std::function<Tensor(const Tensor& mine)>& of_all_slices) {
  const Span span("class_parallel_loss", "forward");
  const Tensor row_labels = checked_labels(logits, labels, here);
  const Tensor statistics = of_all_slices(statistics_of(as_rows(logits), row_labels, here));
  const std::int64_t rows = row_labels.size(0);
  const std::int64_t slices = here.classes / (logits.size(-1) / here.count);
  const double factor = 1 / static_cast<double>(labels_per_sample(labels));
  Tensor loss = empty_like(logits, Shape{});
  Tensor normalizers = empty_like(logits, {rows, 2});
  Tensor classes = Tensor::empty(labels.shape(), DType::int32, logits.device());
  Tensor row_classes = classes.alias({rows}, classes.offset());
  kernels(logits.device())
      .combined_cross_entropy(statistics.reshape({slices, rows, kClassStatistics}), factor, loss, normalizers,
                              row_classes);
  if (predictions != nullptr) {
    *predictions = classes;
  }
  return recorded<ClassParallelNode>(loss, {&logits}, logits, row_labels, normalizers, factor, here);
}

}  // namespace

LossFunction class_parallel_loss(const TensorGroup& group) {
  return [group](const Tensor& logits, const Tensor& labels, Tensor* predictions) {
    const SlicesHere here{1, group.rank * logits.size(-1), group.ranks * logits.size(-1)};
    return loss_from(logits, labels, here, predictions,
                     [&](const Tensor& mine) { return cat(group.comm->all_gather(mine)); });
  };
}

LossFunction sliced_class_loss(int slices) {
  return [slices](const Tensor& logits, const Tensor& labels, Tensor* predictions) {
    return loss_from(logits, labels, {slices, 0, logits.size(-1)}, predictions, std::identity());
  };
}

}  // namespace stagecoach
