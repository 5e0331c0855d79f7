// Trains a ResNet-50 in two shards on two workers by remote calls, and the same on one device; says how long each took
// and whether the weights are equal. `remote_resnet50 IMAGES SIZE SPLITS…` has other sizes than those of the experiment
// in "Distributed pipeline parallelism using RPC" (PyTorch's tutorials), which this program follows.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/random.h"
#include "nn/layers.h"
#include "nn/residual_blocks.h"
#include "nn/sequential.h"
#include "parallel/rpc/distributed_autograd.h"
#include "parallel/rpc/master.h"

using namespace stagecoach;

constexpr int kBatches = 3;
constexpr std::int64_t kClasses = 1000;
constexpr double kRate = 0.05;

void add_group(Sequential& shard, const std::string& name, int blocks, std::int64_t inputs, std::int64_t width,
               std::int64_t stride) {
  for (int i = 0; i < blocks; ++i) {
    shard.add(fmt::format("{}.{}", name, i),
              std::make_shared<Bottleneck>(i == 0 ? inputs : 4 * width, width, i == 0 ? stride : 1));
  }
}

// The stem and the first two groups of blocks: images [N, 3, S, S] to [N, 512, S/8, S/8].
std::shared_ptr<Sequential> make_shard1(Device device) {
  auto shard = std::make_shared<Sequential>();
  shard->add("conv1", std::make_shared<Conv2d>(3, 64, 7, Conv2dSettings{.stride = 2, .padding = 3}, Bias::no))
      .add("bn1", std::make_shared<BatchNorm2d>(64))
      .add("relu", std::make_shared<ReLU>())
      .add("maxpool", std::make_shared<MaxPool2d>(Window{3, 2, 1}));
  add_group(*shard, "layer1", 3, 64, 64, 1);
  add_group(*shard, "layer2", 4, 256, 128, 2);
  shard->materialize(1, device);  // the seed of the initial weights
  return shard;
}

// The other two groups, pooling and the classifier: [N, 512, S/8, S/8] to [N, classes].
std::shared_ptr<Sequential> make_shard2(Device device, std::int64_t classes) {
  auto shard = std::make_shared<Sequential>();
  add_group(*shard, "layer3", 6, 512, 256, 2);
  add_group(*shard, "layer4", 3, 1024, 512, 2);
  shard->add("avgpool", std::make_shared<GlobalAveragePool>()).add("fc", std::make_shared<Linear>(2048, classes));
  shard->materialize(1, device);
  return shard;
}

std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters, double rate) {
  return std::make_unique<Sgd>(std::move(parameters), SgdSettings{.learning_rate = rate});
}

/// Both shards on their workers: the master's model.
class DistResNet50 {
 public:
  DistResNet50(Master& master, std::int64_t classes)
      : master_(master),
        shard1_(master.remote("worker1", "Shard1")),
        shard2_(master.remote("worker2", "Shard2", classes)) {}

  /// Worker 2 works on a split while worker 1 already has the next: all calls are made before a result is waited for.
  Tensor forward(const Tensor& images, std::int64_t splits) const {
    std::vector<Future> futures;
    for (const Tensor& split : split(images, (images.size(0) + splits - 1) / splits)) {
      const RRef x = master_.put("worker1", split);
      const RRef y = shard1_.remote("forward", x);         // stays on worker 1
      futures.push_back(shard2_.rpc_async("forward", y));  // worker 2 gets y from worker 1
    }
    std::vector<Tensor> outputs;
    for (Future& future : futures) {
      outputs.push_back(future.wait());
    }
    return cat(outputs);
  }

  NamedRRefs parameter_rrefs() const {
    NamedRRefs all = shard1_.list("named_parameters");
    const NamedRRefs more = shard2_.list("named_parameters");
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

 private:
  Master& master_;
  RRef shard1_;
  RRef shard2_;
};

/// Random images [count, 3, size, size], and one-hot targets [count, kClasses].
struct ImageBatch {
  ImageBatch(int number, std::int64_t count, std::int64_t size)
      : images(Tensor::empty({count, 3, size, size})), targets(Tensor::zeros({count, kClasses})) {
    const Philox random(1, fmt::format("batch {}", number));
    for (std::int64_t i = 0; i < images.numel(); ++i) {
      images.mutable_data<float>()[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    }
    const Philox labels(1, fmt::format("labels {}", number));
    for (std::int64_t i = 0; i < count; ++i) {
      targets.mutable_data<float>()[i * kClasses + labels.below(static_cast<std::uint64_t>(i), kClasses)] = 1;
    }
  }
  Tensor images;
  Tensor targets;
};

NamedTensors train_remotely(Master& master, const std::vector<ImageBatch>& batches, std::int64_t splits) {
  const DistResNet50 model(master, kClasses);
  const NamedRRefs parameters = model.parameter_rrefs();
  DistributedOptimizer optimizer(master, "SGD", parameters, kRate);
  for (const ImageBatch& batch : batches) {
    DistributedContext context(master);
    const Tensor outputs = model.forward(batch.images, splits);
    context.backward(mean_squared_error(outputs, batch.targets));
    optimizer.step(context);
  }
  return to_here(parameters);
}

// The gradients of the splits are accumulated in their order.
NamedTensors train_on_one_device(const std::vector<ImageBatch>& batches, std::int64_t splits) {
  const auto shard1 = make_shard1(Device{});
  const auto shard2 = make_shard2(Device{}, kClasses);
  NamedTensors parameters = shard1->named_parameters();
  const NamedTensors more = shard2->named_parameters();
  parameters.insert(parameters.end(), more.begin(), more.end());
  const auto optimizer = make_sgd(parameters, kRate);
  for (const auto& [images, targets] : batches) {
    const std::int64_t rows = (images.size(0) + splits - 1) / splits;
    const std::vector<Tensor> targets_of = split(targets, rows);
    for (std::size_t i = 0; const Tensor& part : split(images, rows)) {
      const Tensor loss = mean_squared_error(shard2->forward(shard1->forward(part)), targets_of[i++], Reduction::sum);
      backward(loss, Tensor::full({}, 1.0 / static_cast<double>(targets.numel())));  // of the mean over the batch
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  return parameters;
}

bool are_equal(const NamedTensors& a, const NamedTensors& b) {
  bool equal = a.size() == b.size();
  for (std::size_t i = 0; equal && i < a.size(); ++i) {
    equal = a[i].second.shape() == b[i].second.shape() &&
            std::memcmp(a[i].second.raw_data(), b[i].second.raw_data(), a[i].second.bytes()) == 0;
  }
  return equal;
}

int main(int argc, char** argv) {
  const std::int64_t images = argc > 1 ? std::atoi(argv[1]) : 120;
  const std::int64_t size = argc > 2 ? std::atoi(argv[2]) : 128;
  std::vector<std::int64_t> all_splits{1, 2, 4, 8};
  if (argc > 3) {
    all_splits.clear();
    for (int i = 3; i < argc; ++i) {
      all_splits.push_back(std::atoi(argv[i]));
    }
  }
  std::vector<ImageBatch> batches;
  for (int i = 0; i < kBatches; ++i) {
    batches.emplace_back(i, images, size);
  }
  RemoteTable table;  // built by all ranks
  table.add_class("Shard1", make_shard1);
  table.add_class("Shard2", make_shard2);
  table.add_class("SGD", make_sgd);
  const auto seconds_of = [](const auto& train) {
    const auto start = std::chrono::steady_clock::now();
    train();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  bool all_equal = true;
  std::printf("splits  one device, s  two workers, s  weights\n");
  for (const std::int64_t splits : all_splits) {
    NamedTensors wanted;
    NamedTensors got;
    const double alone = seconds_of([&] { wanted = train_on_one_device(batches, splits); });
    run_with_master({.ranks = 3}, table, [&](Master& master) {
      const double remote = seconds_of([&] { got = train_remotely(master, batches, splits); });
      all_equal = are_equal(wanted, got) && all_equal;
      std::printf("%6d %14.2f %15.2f  %s\n", static_cast<int>(splits), alone, remote,
                  are_equal(wanted, got) ? "equal" : "DIFFERENT");
      std::fflush(stdout);
    });
  }
  return all_equal ? 0 : 1;
}
