#include "parallel/sequence_parallel/sequence_layers.h"

#include <utility>

#include "core/ops/output_shapes.h"

namespace stagecoach {
namespace {

class AttentionBy final : public Module {
 public:
  AttentionBy(std::int64_t heads, std::function<Tensor(const Tensor& qkv)> attend)
      : heads_(heads), attend_(std::move(attend)) {}
  Tensor forward(const Tensor& x) override { return attend_(x); }
  Shape output_shape(const Shape& input) const override { return attention_shape(input, heads_); }

 private:
  std::int64_t heads_;
  std::function<Tensor(const Tensor& qkv)> attend_;
};

}  // namespace

std::shared_ptr<Module> SequenceLayers::attention(std::int64_t heads, AttentionMask mask) const {
  return std::make_shared<AttentionBy>(
      heads, [heads, mask, attend = attend_](const Tensor& qkv) { return attend(qkv, heads, mask); });
}

}  // namespace stagecoach
