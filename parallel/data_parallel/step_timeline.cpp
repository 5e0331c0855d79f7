#include "parallel/data_parallel/step_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "parallel/data_parallel/flat.h"

namespace stagecoach {
namespace {

/// Builds a timeline: each call adds the next part.
class StepBuilder {
 public:
  explicit StepBuilder(const StepModel& step) : step_(step) {}

  void compute(const std::string& name, double seconds) { add(name, Bar::Kind::compute, seconds, 1); }
  void update() { add("update", Bar::Kind::update, step_.costs.update, step_.costs.update_share); }
  /// Adds a message that begins at `from`, or when the link is free. The rank continues meanwhile.
  void send(const std::string& name, double from, double seconds) {
    const double begin = std::max(from, link_free_);
    link_free_ = begin + seconds;
    timeline_.bars.push_back({name, Bar::Kind::communication, begin, link_free_, 1});
  }
  /// Adds a message for which the rank waits.
  void send_and_wait(const std::string& name, double seconds) {
    send(name, now_, seconds);
    wait();
  }
  void wait() { now_ = std::max(now_, link_free_); }
  double now() const { return now_; }
  Timeline finish() {
    timeline_.seconds = now_;
    return timeline_;
  }

  /// Adds forward, backward, and the reductions of `layout`, each of which can begin when its last gradient is
  /// complete.
  void reduce(const BucketLayout& layout, double compressed) {
    compute("forward", step_.costs.forward);
    const double began = now_;
    compute("backward", step_.costs.backward);
    for (const auto& bucket : layout) {
      double full = 0;
      double bytes = 0;
      for (const std::size_t i : bucket) {
        full = std::max(full, step_.costs.arrivals[i]);
        bytes += static_cast<double>(step_.parameters[i].second.bytes());
      }
      send(bucket.size() == 1 ? step_.parameters[bucket[0]].first : fmt::format("{} gradients", bucket.size()),
           began + full, ring_all_reduce_seconds(step_.link, step_.ranks, compressed * bytes));
    }
    wait();
    update();
  }

 private:
  void add(const std::string& name, Bar::Kind kind, double seconds, double ranks) {
    timeline_.bars.push_back({name, kind, now_, now_ + seconds, ranks});
    now_ += seconds;
  }

  const StepModel& step_;
  Timeline timeline_;
  double now_ = 0;
  double link_free_ = 0;
};

/// Returns the indices of the parameters in the order in which their gradients are computed.
std::vector<std::size_t> order_of_arrival(const std::vector<double>& arrivals) {
  std::vector<std::size_t> order = reverse_order(arrivals.size());
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(arrivals[a], a) < std::pair(arrivals[b], b); });
  return order;
}

Timeline central(const StepModel& step) {
  StepBuilder builder(step);
  const double bytes = bytes_of(step.parameters);
  builder.compute("forward", step.costs.forward);
  builder.compute("backward", step.costs.backward);
  builder.send_and_wait("gather gradients", root_reduce_seconds(step.link, step.ranks, bytes));
  builder.update();
  builder.send_and_wait("send weights", tree_broadcast_seconds(step.link, step.ranks, bytes));
  return builder.finish();
}

}  // namespace

double Timeline::idle() const {
  double busy = 0;
  for (const Bar& bar : bars) {
    busy += bar.kind == Bar::Kind::communication ? 0 : bar.ranks * (bar.end - bar.begin);
  }
  return seconds > 0 ? 1 - busy / seconds : 0;
}

double Timeline::waiting() const {
  double working = 0;
  for (const Bar& bar : bars) {
    working += bar.kind == Bar::Kind::communication ? 0 : bar.end - bar.begin;
  }
  return seconds - working;
}

double Timeline::overlap() const {
  const auto backward = std::find_if(bars.begin(), bars.end(), [](const Bar& bar) { return bar.name == "backward"; });
  double all = 0;
  double hidden = 0;
  for (const Bar& bar : bars) {
    if (bar.kind == Bar::Kind::communication) {
      all += bar.end - bar.begin;
      hidden += std::max(0.0, std::min(bar.end, backward->end) - std::max(bar.begin, backward->begin));
    }
  }
  return all > 0 ? hidden / all : 0;
}

Timeline timeline_of(DataParallelMode mode, const StepModel& step) {
  if (mode == DataParallelMode::central) {
    return central(step);
  }
  StepBuilder builder(step);
  if (mode == DataParallelMode::single) {
    builder.compute("forward", step.costs.forward);
    builder.compute("backward", step.costs.backward);
    builder.send_and_wait("all gradients", ring_all_reduce_seconds(step.link, step.ranks, bytes_of(step.parameters)));
    builder.update();
    return builder.finish();
  }
  const std::vector<std::size_t> order = order_of_arrival(step.costs.arrivals);
  if (mode == DataParallelMode::parameter) {
    builder.reduce(bucket_layout(step.parameters, order, {1, 1}), 1);
  } else {
    builder.reduce(bucket_layout(step.parameters, order, step.caps), step.compressed);
  }
  return builder.finish();
}

}  // namespace stagecoach
