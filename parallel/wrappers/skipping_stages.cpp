#include "parallel/wrappers/skipping_stages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/throw_if.h"
#include "core/ops.h"
#include "nn/named_values.h"

namespace stagecoach {
namespace {

using NamedShapes = std::vector<std::pair<std::string, Shape>>;  // for one sample

/// What passes a border between stages: the output of a stage, and the values that skip the border.
struct Border {
  Shape output;
  NamedShapes skips;
};

/// Puts the output and the values side by side: […] and others to [N, all columns].
class JoinColumns final : public Module {
 public:
  explicit JoinColumns(Border border) : border_(std::move(border)) {}
  Tensor forward(const Tensor& x) override {
    std::vector<Tensor> parts{flatten(x)};
    for (const auto& [name, shape] : border_.skips) {
      parts.push_back(flatten(NamedValues::get(name)));
    }
    return cat_columns(parts);
  }
  Shape output_shape(const Shape& input) const override {
    std::int64_t columns = border_.output.numel();
    for (const auto& [name, shape] : border_.skips) {
      columns += shape.numel();
    }
    return {input[0], columns};
  }

 private:
  Border border_;
};

/// Takes them apart again.
class SplitColumns final : public Module {
 public:
  explicit SplitColumns(Border border) : border_(std::move(border)) {}
  Tensor forward(const Tensor& x) override {
    std::int64_t first = border_.output.numel();
    const Tensor output = columns(x, 0, border_.output);
    for (const auto& [name, shape] : border_.skips) {
      NamedValues::put(name, columns(x, first, shape));
      first += shape.numel();
    }
    return output;
  }
  Shape output_shape(const Shape& input) const override { return border_.output.with(0, input[0]); }

 private:
  static Tensor columns(const Tensor& x, std::int64_t first, const Shape& shape) {
    return narrow_columns(x, first, shape.numel()).reshape(shape.with(0, x.size(0)));
  }
  Border border_;
};

/// Follows one layer: its output, and the values that are kept after it.
void follow(Module& layer, Border& at) {
  if (const auto* stash = dynamic_cast<const Stash*>(&layer)) {
    at.skips.emplace_back(stash->name(), at.output);
  } else if (const auto* taker = dynamic_cast<const Unstash*>(&layer)) {
    const auto is_taken = [&](const auto& skip) { return skip.first == taker->name(); };
    const auto found = std::erase_if(at.skips, is_taken);
    throw_if<UsageError>(
        found != 1,
        "Pipe: expected one Stash of '{}' that no layer before has taken, got {}; add Stash(\"{}\") to "
        "the Sequential itself, one for each layer that takes it",
        taker->name(), found, taker->name());
  }
  at.output = layer.output_shape(at.output);
}

}  // namespace

std::vector<std::shared_ptr<Sequential>> skipping_stages(const Sequential& model, const Split& split,
                                                         const Shape& sample) {
  std::vector<std::shared_ptr<Sequential>> stages = stages_of(model, split);
  Border at{sample, {}};
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const auto layers = std::exchange(stages[s], std::make_shared<Sequential>());
    if (!at.skips.empty()) {
      stages[s]->add("(values from the stage before)", std::make_shared<SplitColumns>(at));
    }
    for (const auto& [name, layer] : layers->children()) {
      stages[s]->add(name, layer);
      follow(*layer, at);
    }
    if (s + 1 < stages.size() && !at.skips.empty()) {
      stages[s]->add("(values for the stage after)", std::make_shared<JoinColumns>(at));
    }
  }
  return stages;
}

}  // namespace stagecoach
