#include "tests/labs/lab9_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "core/allocator.h"
#include "core/autograd/grad_mode.h"
#include "core/random.h"
#include "parallel/data_parallel/flat.h"
#include "tests/labs/class_settings.h"

namespace stagecoach::labs::lab9 {

int ranks() { return varied("lab 9: ranks", 3, 4); }

Collectives::Texts texts(const std::function<std::string(std::int64_t count)>& name) {
  constexpr const char* kCalls =
      "all ranks make the same calls in the same order, also those whose shard has only zeros; "
      "chapters/09_sharded_data_parallel/lab/unit.h and step.h";
  return {name, kCalls, kCalls};
}

Collectives::Texts texts() {
  return texts([](std::int64_t count) { return fmt::format("{} numbers", count); });
}

Values numbers(std::int64_t count, const std::string& name) {
  const Philox random(class_seed(), "lab 9: " + name);
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random.normal(i));
  }
  return values;
}

Values sum_of(const std::vector<Values>& values) {
  Values sum = values.front();
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    std::transform(sum.begin(), sum.end(), values[rank].begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

Values part_of(Values values, int rank, int count) {
  const std::size_t parts = static_cast<std::size_t>(count);
  const std::size_t part = (values.size() + parts - 1) / parts;
  values.resize(parts * part);
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(part) * rank;
  return {first, first + static_cast<std::ptrdiff_t>(part)};
}

void poison(std::int64_t numel, Device device) {
  constexpr int kBlocks = 64;  // more than there are free ones of that size
  std::vector<Tensor> held;
  for (int i = 0; i < kBlocks; ++i) {
    held.push_back(Tensor::full({numel}, std::numeric_limits<double>::quiet_NaN(), DType::float32, device));
  }
}

std::size_t bytes_in_use(Communicator& comm) {
  comm.barrier();  // the others may hold this rank's tensors until they return from a collective
  return allocator(comm.device()).stats().current_bytes;
}

lab::Unit make_unit(const std::shared_ptr<Sequential>& layers, Communicator& comm) {
  const NoGrad no_grad;
  layers->materialize(class_seed(), comm.device());
  const std::vector<Tensor> parameters = tensors_of(layers->named_parameters());
  const Tensor weights = padded(flattened(parameters), comm.size());
  const std::int64_t part = weights.numel() / comm.size();
  lab::Unit unit{.layers = layers,
                 .parameters = parameters,
                 .weights = weights,
                 .shard = weights.narrow(comm.rank() * part, part).clone()};
  const std::vector<Tensor> views = views_of(unit.weights, unit.parameters);
  for (std::size_t i = 0; i < views.size(); ++i) {
    unit.parameters[i].rebind(views[i]);
  }
  unit.weights.storage()->drop_memory();
  return unit;
}

bool has_memory(const Tensor& tensor) {
  try {
    return tensor.storage()->block() != nullptr;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace stagecoach::labs::lab9
