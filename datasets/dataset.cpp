#include "datasets/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "core/base/phrases.h"

namespace stagecoach {

Dataset make_dataset(std::int64_t size, std::int64_t side, std::vector<std::string> classes, Device device) {
  return {Tensor::empty({size, 3, side, side}, DType::uint8, device), Tensor::empty({size}, DType::int32, device),
          std::move(classes), nullptr};
}

bool Dataset::has_images() const {
  const DType type = samples ? samples->input().dtype : inputs.defined() ? inputs.dtype() : DType::float32;
  const int dims = samples ? samples->input().shape.dims() : inputs.defined() ? inputs.dims() - 1 : 0;
  return type == DType::uint8 && dims == 3 && (samples ? samples->input().shape[0] : inputs.size(1)) == 3;
}

std::string describe(const TrainTest& data) {
  const std::int64_t files = data.source.files;
  const auto classes = std::ssize(data.train.classes);
  return fmt::format("Data: {} training and {}{}, {}", data.train.size(),
                     counted(data.test.size(), data.train.has_images() ? "test image" : "test sample"),
                     classes == 0 ? "" : " of " + counted(classes, "class"),
                     files == 0 ? "generated" : "from " + counted(files, "file"));
}

std::string describe_left_out(const DataSource& source) {
  constexpr std::size_t kMost = 8;  // reasons that a line has room for
  std::vector<std::pair<std::string, std::int64_t>> reasons(source.left_out.begin(), source.left_out.end());
  std::stable_sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts;
  std::int64_t others = 0;
  for (const auto& [reason, count] : reasons) {
    if (parts.size() < kMost) {
      parts.push_back(fmt::format("{} {}", count, reason));
    } else {
      others += count;
    }
  }
  if (others > 0) {
    parts.push_back(fmt::format("{} others", others));
  }
  return parts.empty() ? "" : fmt::format("Left out: {}", fmt::join(parts, ", "));
}

}  // namespace stagecoach
