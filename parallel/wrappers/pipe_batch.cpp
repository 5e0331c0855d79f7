#include "parallel/wrappers/pipe_batch.h"

#include <utility>

#include "core/autograd/node.h"
#include "core/base/error.h"
#include "core/ops.h"
#include "datasets/shares.h"

namespace stagecoach {

PipeBatch::PipeBatch(std::shared_ptr<RankPool> ranks, std::vector<std::int64_t> samples, MakePipeline make_pipeline)
    : ranks_(std::move(ranks)),
      samples_(std::move(samples)),
      make_pipeline_(std::move(make_pipeline)),
      pipelines_(static_cast<std::size_t>(ranks_->ranks())) {}

void PipeBatch::run(const Schedule& schedule, const Parts& parts, const Hooks& hooks) {
  const auto count = static_cast<int>(samples_.size());
  const Schedule& step = count < schedule.microbatches ? with_fewer_microbatches(schedule, count) : schedule;
  ranks_->run([&](Rank& rank) {
    const auto on_rank = [&](const std::vector<Tensor>& tensors) -> std::function<Tensor(int)> {
      if (tensors.empty()) {
        return {};
      }
      return [&](int i) { return tensors[static_cast<std::size_t>(i)].to(rank.device); };
    };
    const auto values_on_rank = [&](int i) {
      NamedTensors values = parts.values[static_cast<std::size_t>(i)];
      for (auto& [name, value] : values) {
        value = value.to(rank.device);
      }
      return values;
    };
    const auto no_grad = trains ? std::nullopt : std::optional<NoGrad>(std::in_place);
    auto& pipeline = pipelines_[static_cast<std::size_t>(rank.index)];
    if (pipeline == nullptr) {
      pipeline = make_pipeline_(rank);
    }
    pipeline->train(trains);
    pipeline->run(step,
                  {.input = on_rank(parts.inputs),
                   .labels = on_rank(parts.targets),
                   .samples = samples_,
                   .position = position,
                   .values = parts.values.empty() ? std::function<NamedTensors(int)>() : values_on_rank,
                   .output_gradient = on_rank(parts.output_gradients),
                   .wants_input_gradient = wants_input_gradient},
                  hooks);
  });
}

namespace {

class PipeNode final : public Node {
 public:
  /// `parameters` is a leaf that requires a gradient: the parameters collect theirs on the ranks.
  PipeNode(const Tensor& x, const Tensor& parameters, std::unique_ptr<PipeBatch> batch, Schedule backwards)
      : Node("pipe", {x, parameters}),
        device_(x.device()),
        batch_(std::move(batch)),
        backwards_(std::move(backwards)) {}

  Gradients backward(const Tensor& grad_output, const NeedsInputGrad&) override {
    STAGECOACH_CHECK(batch_ != nullptr,
                     "Pipe: an earlier backward has already freed what the ranks kept of this batch; call "
                     "forward_for_loss again");
    const auto batch = std::exchange(batch_, nullptr);
    std::vector<Tensor> gradients(batch->samples().size());
    batch->run(backwards_, {.output_gradients = micro_batches(grad_output, std::ssize(batch->samples()))},
               {.see_input_gradient = [&](int i, const Tensor& gradient) {
                 gradients[static_cast<std::size_t>(i)] = gradient.to(device_);
               }});
    return {batch->wants_input_gradient ? cat(gradients) : Tensor{}, Tensor::zeros({})};
  }
  void release() override {
    Node::release();
    batch_.reset();
  }

 private:
  Device device_;  // of x
  std::unique_ptr<PipeBatch> batch_;
  Schedule backwards_;
};

}  // namespace

Tensor with_backward(const Tensor& output, const Tensor& x, std::unique_ptr<PipeBatch> batch, Schedule backwards) {
  Tensor parameters = Tensor::zeros({});
  parameters.set_requires_grad(true);
  Tensor result = output.detach();
  result.set_grad_node(std::make_shared<PipeNode>(x, parameters, std::move(batch), std::move(backwards)));
  return result;
}

}  // namespace stagecoach
