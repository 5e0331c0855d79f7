// Trains a model and data of one's own as a pipeline of four ranks.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "core/random.h"
#include "nn/layers.h"
#include "parallel/parallel.h"

using namespace stagecoach;

int main() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(2, 32)).add("relu1", std::make_shared<ReLU>());
  model->add("fc2", std::make_shared<Linear>(32, 32)).add("relu2", std::make_shared<ReLU>());
  model->add("fc3", std::make_shared<Linear>(32, 2));

  // Points of the plane; the label says whether both coordinates have the same sign.
  const Philox random(1, "points");
  std::vector<float> points(2 * 256);
  std::vector<std::int32_t> quadrants(256);
  for (std::size_t i = 0; i < 256; ++i) {
    points[2 * i] = static_cast<float>(random.normal(2 * i));
    points[2 * i + 1] = static_cast<float>(random.normal(2 * i + 1));
    quadrants[i] = points[2 * i] * points[2 * i + 1] > 0 ? 1 : 0;
  }
  const Tensor x = Tensor::from(points, {256, 2});
  const Tensor labels = Tensor::from(quadrants, {256});

  // chunks: micro-batches per batch. The pipe measures the layers and splits them when it gets the first batch.
  Pipe pipe(model, {.chunks = 8, .schedule = "1f1b", .ranks = 4, .optimizer = adam({.learning_rate = 0.01})});
  for (int step = 0; step <= 100; ++step) {
    if (const double loss = pipe.train_step(x, labels); step % 20 == 0) {
      std::printf("step %d: loss %.3f\n", step, loss);
    }
  }
  return pipe.forward(x).size(0) == 256 ? 0 : 1;  // [256, 2]
}
