#include <algorithm>
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

void class_statistics(const Tensor& logits, const Tensor& labels, std::int64_t first, std::int64_t classes,
                      Tensor& statistics) {
  dispatch_floating(logits.dtype(), "class_statistics", [&]<class T>() {
    const std::int64_t width = logits.size(1);
    const T* in = logits.data<T>();                   // [N, width]
    const auto* label = labels.data<std::int32_t>();  // [N]
    T* out = statistics.mutable_data<T>();            // [N, 4]
    for (std::int64_t n = 0; n < logits.size(0); ++n, out += 4) {
      const T* row = in + n * width;
      STAGECOACH_CHECK(label[n] >= 0 && label[n] < classes,
                       "cross_entropy: expected labels from 0 to {}, got {} for sample {}", classes - 1, label[n], n);
      const std::int64_t column = label[n] - first;
      const LogSoftmax<T> log_softmax_of(row, width);
      out[0] = log_softmax_of.largest;
      out[1] = static_cast<T>(first + (std::max_element(row, row + width) - row));
      out[2] = log_softmax_of.sum;
      out[3] = column >= 0 && column < width ? row[column] : 0;
    }
  });
}

void combined_cross_entropy(const Tensor& statistics, double factor, Tensor& loss, Tensor& normalizers,
                            Tensor& predictions) {
  dispatch_floating(statistics.dtype(), "combined_cross_entropy", [&]<class T>() {
    const std::int64_t samples = statistics.size(1);
    const T* in = statistics.data<T>();  // [slices, N, 4]
    T* normalizer = normalizers.mutable_data<T>();
    auto* prediction = predictions.mutable_data<std::int32_t>();
    double total = 0;
    for (std::int64_t n = 0; n < samples; ++n) {
      const auto slice_statistics = [&](std::int64_t slice) { return in + (slice * samples + n) * 4; };
      const T* best = slice_statistics(0);
      for (std::int64_t slice = 1; slice < statistics.size(0); ++slice) {
        best = best[0] < slice_statistics(slice)[0] ? slice_statistics(slice) : best;
      }
      T sum = 0;
      T label_logit = 0;  // of the slice that has the label; the others have 0
      for (std::int64_t slice = 0; slice < statistics.size(0); ++slice) {
        const T* mine = slice_statistics(slice);
        sum += mine[2] * std::exp(mine[0] - best[0]);
        label_logit += mine[3];
      }
      const LogSoftmax<T> log_softmax_of(best[0], std::log(sum));
      normalizer[2 * n] = log_softmax_of.largest;
      normalizer[2 * n + 1] = log_softmax_of.log_sum;
      prediction[n] = static_cast<std::int32_t>(best[1]);
      total -= log_softmax_of(label_logit);
    }
    *loss.mutable_data<T>() = static_cast<T>(factor * total);
  });
}

void class_slice_grad(const Tensor& grad_loss, const Tensor& logits, const Tensor& labels, const Tensor& normalizers,
                      std::int64_t first, double factor, Tensor& grad_logits) {
  dispatch_floating(logits.dtype(), "class_slice_grad", [&]<class T>() {
    const T* in = logits.data<T>();                   // [N, width]
    const auto* label = labels.data<std::int32_t>();  // [N]
    const T* normalizer = normalizers.data<T>();      // [N, 2]
    T* out = grad_logits.mutable_data<T>();           // [N, width]
    const T weight = static_cast<T>(factor) * *grad_loss.data<T>();
    for_each_row(logits, [=](std::int64_t start, std::int64_t width) {
      const std::int64_t n = start / width;
      const LogSoftmax<T> log_softmax_of(normalizer[2 * n], normalizer[2 * n + 1]);
      for (std::int64_t c = start; c < start + width; ++c) {
        out[c] = weight * std::exp(log_softmax_of(in[c]));
      }
      if (const std::int64_t column = label[n] - first; column >= 0 && column < width) {
        out[start + column] -= weight;
      }
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
  tables.add<&Kernels::class_statistics>("class_statistics", class_statistics);
  tables.add<&Kernels::combined_cross_entropy>("combined_cross_entropy", combined_cross_entropy);
  tables.add<&Kernels::class_slice_grad>("class_slice_grad", class_slice_grad);
  tables.add<&Kernels::squared_error>("squared_error", squared_error);
  tables.add<&Kernels::squared_error_grad>("squared_error_grad", squared_error_grad);
}

}  // namespace stagecoach::cpu
