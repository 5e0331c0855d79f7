#include "datasets/sample_source.h"

#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/throw_if.h"
#include "datasets/dataset.h"

namespace stagecoach {
namespace {

SampleType type_of_rows(const Tensor& rows) { return {Shape(rows.shape().begin() + 1, rows.dims() - 1), rows.dtype()}; }

/// Copies row `index` of `rows` to `out`.
void copy_row(const Tensor& rows, std::int64_t index, Tensor& out) {
  const std::size_t bytes = out.bytes();
  std::memcpy(out.raw_mutable_data(),
              static_cast<const std::byte*>(rows.raw_data()) + static_cast<std::size_t>(index) * bytes, bytes);
}

/// Samples in memory: the rows of two tensors.
class Rows final : public SampleSource {
 public:
  Rows(Tensor inputs, Tensor targets) : inputs_(std::move(inputs)), targets_(std::move(targets)) {
    const auto is_rows = [](const Tensor& t) {
      return t.defined() && t.dims() > 0 && t.device().type == DeviceType::cpu;
    };
    STAGECOACH_CHECK(is_rows(inputs_) && is_rows(targets_) && inputs_.size(0) == targets_.size(0),
                     "data set: expected inputs [N, …] and targets [N, …] on a CPU, got {} and {}", describe(inputs_),
                     describe(targets_));
  }

  std::int64_t size() const override { return targets_.size(0); }
  SampleType input() const override { return type_of_rows(inputs_); }
  SampleType target() const override { return type_of_rows(targets_); }
  void read(std::int64_t index, Tensor& input, Tensor& target) const override {
    if (input.defined()) {
      copy_row(inputs_, index, input);
    }
    copy_row(targets_, index, target);
  }

 private:
  Tensor inputs_;   // [N, …]
  Tensor targets_;  // [N, …]
};

}  // namespace

std::shared_ptr<const SampleSource> samples_of(const Dataset& data) {
  throw_if<UsageError>(data.size() == 0, "loader: expected at least one sample, got an empty dataset");
  return data.samples ? data.samples : std::make_shared<Rows>(data.inputs, data.targets);
}

}  // namespace stagecoach
