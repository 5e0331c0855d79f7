#include "parallel/wrappers/data_parallel.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/autograd/backward.h"
#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "nn/batch_position.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/wrappers/require_batch.h"

namespace stagecoach {

DataParallel::DataParallel(const std::function<std::shared_ptr<Module>()>& make_model, DataParallelSettings settings)
    : loss_(settings.loss),
      type_(settings.type),
      ranks_(std::make_shared<RankPool>(
          World{.ranks = settings.ranks, .device = settings.device, .timeout = settings.timeout})) {
  require_type_of_weights("DataParallel", type_);
  static_cast<void>(settings.optimizer({}));  // throws for wrong settings before a rank runs
  for (int r = 0; r < settings.ranks; ++r) {
    std::shared_ptr<Module> model = make_model();
    throw_if<UsageError>(model == nullptr,
                         "DataParallel: expected a function that returns a new model, got a null pointer from it");
    throw_if<UsageError>(std::find(models_.begin(), models_.end(), model) != models_.end(),
                         "DataParallel: expected a function that returns a new model, got the same one twice; make the "
                         "model inside the function");
    models_.push_back(std::move(model));
  }
  ranks_->run([&](Rank& rank) {
    Module& model = *models_[static_cast<std::size_t>(rank.index)];
    model.materialize(settings.seed, rank.device, type_);
    if (rank.index == 0) {
      optimizer_ = settings.optimizer(model.named_parameters());
    }
  });
}

double DataParallel::train_step(const Tensor& x, const Tensor& target) {
  require_batch("DataParallel", x, target, loss_, type_);
  copy_requires_grad();
  const LossFunction loss_function = loss_.value_or(LossFunction());
  const std::int64_t batch = x.size(0);
  const std::int64_t step = optimizer_->steps_done();
  double loss_sum = 0;
  ranks_->run([&](Rank& rank) {
    Module& model = *models_[static_cast<std::size_t>(rank.index)];
    model.train(true);
    broadcast_tensors(model.named_parameters(), rank.comm);  // rank 0 has updated them since the last batch

    double loss_of_share = 0;
    if (const Share share = share_of(batch, rank.index, rank.world); share.count > 0) {
      const BatchScope scope(BatchPosition{step, share.first});
      const auto of_rank = [&](const Tensor& all) {
        return all.detach().narrow(share.first, share.count).to(rank.device);
      };
      const Tensor loss = loss_function(model.forward(of_rank(x)), of_rank(target));
      const double weight = loss_function.weight(share.count);
      backward(loss, Tensor::full({}, weight / static_cast<double>(batch), type_, rank.device));
      loss_of_share = loss.item() * weight;
    }
    reduce_gradients(rank);
    const double sum = rank.comm.sum_numbers({loss_of_share})[0];
    if (rank.index == 0) {
      loss_sum = sum;
      optimizer_->step();
    }
    for (auto& [name, parameter] : model.named_parameters()) {
      Tensor(parameter).zero_grad();
    }
  });
  return loss_sum / static_cast<double>(batch);
}

/// Freezes on all ranks the parameters that are frozen on rank 0.
void DataParallel::copy_requires_grad() {
  const NamedTensors first = models_[0]->named_parameters();
  for (std::size_t r = 1; r < models_.size(); ++r) {
    const NamedTensors parameters = models_[r]->named_parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Tensor(parameters[i].second).set_requires_grad(first.at(i).second.requires_grad());
    }
  }
}

/// Replaces the gradients of rank 0 by their sums over all ranks. If some ranks have a gradient of a parameter, those
/// of the others count as zeros; if none has, there is still none, so that the optimizer leaves the parameter as it is.
void DataParallel::reduce_gradients(Rank& rank) {
  const NamedTensors all_parameters = models_[static_cast<std::size_t>(rank.index)]->named_parameters();
  std::vector<double> uses;
  for (const auto& [name, parameter] : all_parameters) {
    uses.push_back(parameter.grad().defined() ? 1 : 0);
  }
  uses = rank.comm.sum_numbers(uses);
  NamedTensors parameters;
  for (std::size_t i = 0; i < all_parameters.size(); ++i) {
    if (uses[i] == 0) {
      continue;
    }
    Tensor parameter = parameters.emplace_back(all_parameters[i]).second;
    if (!parameter.grad().defined()) {
      parameter.set_grad(Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device()));
    }
  }
  if (parameters.empty()) {
    return;
  }
  Tensor all = flattened(gradients_of(parameters));
  rank.comm.reduce(all, 0);
  if (rank.index == 0) {
    unflatten_into(all, gradients_of(parameters));
  }
}

Tensor DataParallel::forward(const Tensor& x) {
  require_input("DataParallel", x, type_);
  Tensor output;
  ranks_->run([&](Rank& rank) {
    if (rank.index == 0) {
      const NoGrad no_grad;
      models_[0]->train(false);
      output = models_[0]->forward(x.to(rank.device));
    }
  });
  return output;
}

}  // namespace stagecoach
