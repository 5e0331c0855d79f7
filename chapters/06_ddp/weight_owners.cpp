// The two strategies in which one rank owns the weights: a parameter server, and replication, which copies the model to
// the other ranks for every batch. Their functions are declared in strategy.h.

#include <memory>
#include <utility>
#include <vector>

#include "chapters/06_ddp/replica.h"
#include "chapters/common/open.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/trace.h"
#include "datasets/shares.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {
namespace {

/// A rank of either strategy. All ranks compute with a model; only the owner has the training state, and updates it.
class WeightOwner : public Replica {
 public:
  using Replica::Replica;
  Module& model() override { return owns() ? *model_ : nothing_; }

 protected:
  static constexpr int kOwner = 0;
  bool owns() const { return rank_.index == kOwner; }

  /// Makes the optimizer: for `parameters` on the owner, for no parameters on the other ranks.
  void make_owners_optimizer(NamedTensors parameters) {
    optimizer_ = make_optimizer(settings_.training, owns() ? std::move(parameters) : NamedTensors{});
  }
  /// Returns, on the owner, the sums of all ranks' gradients in one tensor: [all parameters]. Clears the gradients.
  Tensor reduce_gradients() {
    Tensor all = flattened(gradients_of(parameters_));
    for (auto& [name, parameter] : parameters_) {
      parameter.zero_grad();
    }
    communicate("gather gradients", [&] { rank_.comm.reduce(all, kOwner); });
    return all;
  }
  /// Updates the owner's weights with sums from reduce_gradients().
  void update_with(const Tensor& sums) {
    const Span span("optimizer", "update");
    const std::vector<Tensor> parameters = tensors_of(optimizer_->parameters());
    const std::vector<Tensor> views = views_of(sums, parameters);
    for (std::size_t i = 0; i < views.size(); ++i) {
      Tensor parameter = parameters[i];
      parameter.set_grad(views[i]);
    }
    optimizer_->step();
    optimizer_->zero_grad();
  }

 private:
  Sequential nothing_;
};

/// All ranks compute gradients; the owner sums them, updates the weights, and broadcasts them. Only the owner has an
/// optimizer, and its weights and state are in CPU memory: the devices hold the model and nothing else.
class ParameterServer final : public WeightOwner {
 public:
  explicit ParameterServer(const Context& context) : WeightOwner(context) {
    NamedTensors variables;
    for (const auto& [name, parameter] : owns() ? parameters_ : NamedTensors{}) {
      variables.emplace_back(name, parameter.to(Device{}).clone());
      variables.back().second.set_requires_grad(true);
    }
    make_owners_optimizer(std::move(variables));
  }

  void broadcast_weights() override {
    Replica::broadcast_weights();
    if (owns()) {
      unflatten_into(flattened(tensors_of(parameters_)).to(Device{}), tensors_of(optimizer_->parameters()));
    }
  }

  void train_step(const MicroBatches& batch, EpochSums& sums) override {
    forward_backward(batch, sums);
    Tensor all = reduce_gradients();  // [all parameters]
    if (owns()) {
      update_with(all.to(Device{}));
      all.copy_from(flattened(tensors_of(optimizer_->parameters())));  // `all` now contains the weights
    }
    communicate("send weights", [&] { rank_.comm.broadcast(all, kOwner); });
    unflatten_into(all, tensors_of(parameters_));
    times_.end_step();
  }
};

enum Tag : int { kImages, kLogits, kGradient };

/// Only the owner loads data, computes the loss, and updates the weights. For each batch it sends every other rank the
/// weights and a part of the images, gets logits back, sends their gradients, and gets the sum of the weights'
/// gradients.
class ReplicatePerBatch final : public WeightOwner {
 public:
  explicit ReplicatePerBatch(const Context& context)
      : WeightOwner(context), classes_(static_cast<int>(data_.train.classes.size())) {
    make_owners_optimizer(parameters_);
  }

  MicroBatchLoader loader(LoaderFor purpose) override {
    using Needs = MicroBatchLoader::Needs;
    const Dataset& data = purpose == LoaderFor::training ? data_.train : data_.test;
    return {settings_, data, purpose, rank_.device, owns() ? Needs::images_and_labels : Needs::nothing, 1};
  }

  void train_step(const MicroBatches& batch, EpochSums& sums) override {
    times_.begin_step();
    copy_model();
    const Tensor logits = forward(part_of_images(batch));  // [N, classes]
    const Tensor gradient = gradient_of_logits(logits, batch, sums);
    times_.begin_backward();
    {
      const Span span("backward", "action", [] { return to_string(Action{Operation::backward, 0, 0}); });
      backward(logits, gradient);
    }
    times_.end_backward();

    const Tensor gradients = reduce_gradients();
    if (owns()) {
      update_with(gradients);
    }
    times_.end_step();
    std::erase_if(sent_, [](const PendingSend& send) { return send.completed(); });
  }

  void sync_replicas() override {
    copy_model();
    Replica::sync_replicas();
  }

  void evaluate(Epoch& epoch, MicroBatchLoader& loader) override {
    if (owns()) {
      return Replica::evaluate(epoch, loader);
    }
    for ([[maybe_unused]] const MicroBatches& batch : epoch.test_batches(loader)) {  // only the owner has the data
    }
  }

 private:
  /// Broadcasts the owner's weights, which each rank uses for one batch.
  void copy_model() {
    Tensor weights = flattened(tensors_of(parameters_));
    communicate("copy model", [&] { rank_.comm.broadcast(weights, kOwner); });
    if (!owns()) {
      unflatten_into(weights, tensors_of(parameters_));
    }
  }

  Tensor forward(const Tensor& images) {
    const Span span("forward", "action", [] { return to_string(Action{Operation::forward, 0, 0}); });
    return model_->forward(normalize(images));
  }

  /// Returns this rank's part [n, 3, H, W] of the images. The owner sends the other ranks their parts.
  Tensor part_of_images(const MicroBatches& batch) {
    const Span span("scatter images", "communication");
    const auto part = [&](int r) { return share_of(batch.global_size, r, rank_.world); };
    const std::int64_t size = settings_.training.image_size;
    if (!owns()) {
      return rank_.comm.receive(Shape{part(rank_.index).count, 3, size, size}, DType::uint8, kOwner, kImages);
    }
    for (int r = 1; r < rank_.world; ++r) {
      sent_.push_back(rank_.comm.send_async(batch.images[0].narrow(part(r).first, part(r).count).clone(), r, kImages));
    }
    return batch.images[0].narrow(0, part(0).count);
  }

  /// Returns the gradient of this rank's logits [N, classes]: the owner gathers all logits, and computes it from the
  /// loss.
  Tensor gradient_of_logits(const Tensor& mine, const MicroBatches& batch, EpochSums& sums) {
    const Span span("logits and their gradients", "communication");
    if (!owns()) {
      sent_.push_back(rank_.comm.send_async(mine, kOwner, kLogits));
      return rank_.comm.receive(mine.shape(), mine.dtype(), kOwner, kGradient);
    }
    Tensor all = Tensor::empty({batch.global_size, classes_}, mine.dtype(), mine.device());
    const auto rows = [&](const Tensor& of, int r) {
      const Share part = share_of(batch.global_size, r, rank_.world);
      return of.alias({part.count, classes_}, part.first * classes_);
    };
    rows(all, 0).copy_from(mine);
    for (int r = 1; r < rank_.world; ++r) {
      Tensor into = rows(all, r);
      into.copy_from(rank_.comm.receive(into.shape(), into.dtype(), r, kLogits));
    }
    all.set_requires_grad(true);
    const Tensor loss = cross_entropy(all, batch.labels[0], Reduction::sum);
    backward(loss, Tensor::full({}, 1.0 / static_cast<double>(batch.global_size), mine.dtype(), mine.device()));
    sums.add(loss, all, batch.labels[0]);
    for (int r = 1; r < rank_.world; ++r) {
      sent_.push_back(rank_.comm.send_async(rows(all.grad(), r).clone(), r, kGradient));
    }
    return rows(all.grad(), 0);
  }

  int classes_;
  std::vector<PendingSend> sent_;
};

}  // namespace

std::unique_ptr<Strategy> make_parameter_server(const Context& context) {
  return std::make_unique<ParameterServer>(context);
}

std::unique_ptr<Strategy> make_replicate_per_batch(const Context& context) {
  return std::make_unique<ReplicatePerBatch>(context);
}

}  // namespace stagecoach
