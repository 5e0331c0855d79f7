#include <cmath>

#include "core/kernels/cpu/rows.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"

namespace stagecoach::cpu {
namespace {

void cross_entropy(const Tensor& logits, const Tensor& labels, double factor, Tensor& loss, Tensor& probabilities) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    const std::int64_t classes = logits.size(1);
    const T* in = logits.data<T>();                    // [N, C]
    const auto* label = labels.data<std::int32_t>();   // [N]
    T* probability = probabilities.mutable_data<T>();  // [N, C]
    double sum = 0;  // one thread, rows in order; double keeps precision in a large batch
    for (std::int64_t n = 0; n < logits.size(0); ++n) {
      const T* row = in + n * classes;
      STAGECOACH_CHECK(label[n] >= 0 && label[n] < classes,
                       "cross_entropy: expected labels from 0 to {}, got {} for sample {}", classes - 1, label[n], n);
      const LogSoftmax<T> log_softmax_of(row, classes);
      for (std::int64_t c = 0; c < classes; ++c) {
        probability[n * classes + c] = std::exp(log_softmax_of(row[c]));
      }
      sum -= log_softmax_of(row[label[n]]);
    }
    *loss.mutable_data<T>() = static_cast<T>(factor * sum);
  });
}

void cross_entropy_grad(const Tensor& grad_loss, const Tensor& probabilities, const Tensor& labels, double factor,
                        Tensor& grad_logits) {
  dispatch_floating(probabilities.dtype(), "cross_entropy_grad", [&]<class T>() {
    const T* probability = probabilities.data<T>();   // [N, C]
    const auto* label = labels.data<std::int32_t>();  // [N]
    T* out = grad_logits.mutable_data<T>();           // [N, C]
    const T weight = static_cast<T>(factor) * *grad_loss.data<T>();
    for_each_row(probabilities, [=](std::int64_t start, std::int64_t width) {
      for (std::int64_t c = start; c < start + width; ++c) {
        out[c] = weight * probability[c];
      }
      out[start + label[start / width]] -= weight;
    });
  });
}

void squared_error(const Tensor& a, const Tensor& b, double factor, Tensor& loss) {
  dispatch_floating(a.dtype(), "squared_error", [&]<class T>() {
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    double sum = 0;
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const double difference = left[i] - right[i];
      sum += difference * difference;
    }
    *loss.mutable_data<T>() = static_cast<T>(factor * sum);
  });
}

void squared_error_grad(const Tensor& grad_loss, const Tensor& a, const Tensor& b, double factor, Tensor& grad_a) {
  dispatch_floating(a.dtype(), "squared_error_grad", [&]<class T>() {
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    T* out = grad_a.mutable_data<T>();
    const T weight = static_cast<T>(2 * factor) * *grad_loss.data<T>();
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      out[i] = weight * (left[i] - right[i]);
    }
  });
}

}  // namespace

void add_losses(Tables& tables) {
  tables.add<&Kernels::cross_entropy>("cross_entropy", cross_entropy);
  tables.add<&Kernels::cross_entropy_grad>("cross_entropy_grad", cross_entropy_grad);
  tables.add<&Kernels::squared_error>("squared_error", squared_error);
  tables.add<&Kernels::squared_error_grad>("squared_error_grad", squared_error_grad);
}

}  // namespace stagecoach::cpu
