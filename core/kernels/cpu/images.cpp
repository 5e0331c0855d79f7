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

/// Copies the elements of one sample, of the type T or another of its size: source and target [planes, H, W].
template <class T>
void gather_sample(const T* source, const std::int32_t* crop, std::int64_t planes, std::int64_t height,
                   std::int64_t width, T* target) {
  for (std::int64_t line = 0; line < planes * height; ++line) {
    const std::int64_t y = line % height + crop[1];
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t column = (crop[3] != 0 ? width - 1 - x : x) + crop[2];
      const bool is_inside = y >= 0 && y < height && column >= 0 && column < width;
      target[line * width + x] = is_inside ? source[(line + crop[1]) * width + column] : T(0);
    }
  }
}

template <class T>
void gather_as(const Tensor& rows, const Tensor& crops, Tensor& out) {
  const std::int64_t planes = rows.size(1);
  const std::int64_t height = rows.size(2);
  const std::int64_t width = rows.size(3);
  const std::int64_t elements = planes * height * width;
  const auto* from = static_cast<const T*>(rows.raw_data());  // [S, P, H, W]
  const auto* crop = crops.data<std::int32_t>();              // [N, 4]
  auto* to = static_cast<T*>(out.raw_mutable_data());         // [N, P, H, W]
  parallel_for(rows.device(), crops.size(0), [=](std::int64_t n) {
    const T* sample = from + crop[4 * n] * elements;
    gather_sample(sample, crop + 4 * n, planes, height, width, to + n * elements);
  });
}

void gather(const Tensor& rows, const Tensor& crops, Tensor& out) {
  const std::size_t size = size_of(rows.dtype());
  size == 1   ? gather_as<std::uint8_t>(rows, crops, out)
  : size == 4 ? gather_as<std::uint32_t>(rows, crops, out)
              : gather_as<std::uint64_t>(rows, crops, out);
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
  tables.add<&Kernels::gather>("gather", gather);
  tables.add<&Kernels::count_correct>("count_correct", count_correct);
  tables.add<&Kernels::count_equal>("count_equal", count_equal);
}

}  // namespace stagecoach::cpu
