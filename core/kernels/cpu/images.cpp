#include <algorithm>

#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace {

void normalize(const Tensor& images, const Normalization& normalization, Tensor& out) {
  const std::int64_t plane = images.size(2) * images.size(3);
  const auto* pixels = images.data<std::uint8_t>();  // [N, 3, H, W]
  auto* values = out.mutable_data<float>();          // [N, 3, H, W]
  parallel_for(images.device(), images.size(0), [&](std::int64_t n) {
    for (std::int64_t c = 0; c < 3; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      const float factor = 1 / (255 * normalization.deviation[channel]);
      const float shift = -normalization.mean[channel] / normalization.deviation[channel];
      const std::int64_t start = (n * 3 + c) * plane;
      for (std::int64_t i = start; i < start + plane; ++i) {
        values[i] = static_cast<float>(pixels[i]) * factor + shift;
      }
    }
  });
}

void count_correct(const Tensor& logits, const Tensor& labels, Tensor& count) {
  dispatch_floating(logits.dtype(), "count_correct", [&]<class T>() {
    const std::int64_t classes = logits.size(1);
    const T* logit = logits.data<T>();                // [N, C]
    const auto* label = labels.data<std::int32_t>();  // [N]
    std::int32_t correct = 0;
    for (std::int64_t n = 0; n < logits.size(0); ++n) {
      const T* row = logit + n * classes;
      correct += std::max_element(row, row + classes) - row == label[n] ? 1 : 0;
    }
    *count.mutable_data<std::int32_t>() += correct;
  });
}

void count_equal(const Tensor& a, const Tensor& b, Tensor& count) {
  const auto* left = a.data<std::int32_t>();
  const auto* right = b.data<std::int32_t>();
  std::int32_t equal = 0;
  for (std::int64_t n = 0; n < a.numel(); ++n) {
    equal += left[n] == right[n] ? 1 : 0;
  }
  *count.mutable_data<std::int32_t>() += equal;
}

}  // namespace

void add_images(Tables& tables) {
  tables.add<&Kernels::normalize>("normalize", normalize);
  tables.add<&Kernels::count_correct>("count_correct", count_correct);
  tables.add<&Kernels::count_equal>("count_equal", count_equal);
}

}  // namespace stagecoach::cpu
