#include "chapters/common/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/autograd/grad_mode.h"
#include "core/base/parse.h"
#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/random.h"
#include "parallel/training/console.h"

namespace stagecoach {
namespace {

constexpr double kTemperature = 0.8;

/// Returns the class that `uniform`, in 0 … 1, chooses from softmax(logits / temperature): logits [classes].
int drawn_from(const std::vector<float>& logits, double uniform) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> sums;  // of the probabilities up to each class, times a common factor
  double sum = 0;
  for (const float logit : logits) {
    sums.push_back(sum += std::exp((logit - largest) / kTemperature));
  }
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), uniform * sum);
  return static_cast<int>(std::min(chosen, sums.end() - 1) - sums.begin());
}

/// Returns row `row` of the logits [1, context, classes].
std::vector<float> row_of(const Tensor& logits, std::int64_t row) {
  return logits.reshape({logits.size(1), logits.size(2)}).narrow(row, 1).to(Device{}).to_vector<float>();
}

}  // namespace

void print_sample(const Settings& settings, const std::function<Tensor(const Tensor& tokens)>& forward,
                  const std::function<int(int byte)>& share, bool prints) {
  if (settings.run.sample == 0) {
    return;
  }
  const NoGrad no_grad;
  const auto context = static_cast<std::size_t>(settings.training.context);
  const Philox random(settings.training.seed, "sample");
  std::string text = "\n";
  for (std::int64_t i = 0; i < settings.run.sample; ++i) {
    const std::string latest = text.substr(text.size() - std::min(text.size(), context));
    std::vector<std::int32_t> tokens(context);
    std::transform(latest.begin(), latest.end(), tokens.begin(), [](char c) { return static_cast<unsigned char>(c); });
    const Tensor logits = forward(Tensor::from(tokens, {1, settings.training.context}));
    const int byte = logits.defined() ? drawn_from(row_of(logits, std::ssize(latest) - 1),
                                                   random.uniform(static_cast<std::uint64_t>(i)))
                                      : 0;
    text.push_back(static_cast<char>(share ? share(byte) : byte));
  }
  if (prints) {
    print_line(fmt::format("Sample of {}:", counted(settings.run.sample, "byte")));
    for (const std::string_view line : split_text(std::string_view(text).substr(1), '\n')) {
      print_line("  " + printable(line));
    }
  }
}

void print_sample(const Settings& settings, Module& model, const std::function<Tensor(const Tensor& tokens)>& forward) {
  model.train(false);
  print_sample(settings, forward);
  model.train(true);
}

void print_sample(const Settings& settings, Module& model, Device device) {
  print_sample(settings, model, [&](const Tensor& tokens) { return model.forward(tokens.to(device)); });
}

}  // namespace stagecoach
