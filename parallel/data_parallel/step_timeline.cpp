#include "parallel/data_parallel/step_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach {
namespace {

/// What a rank computes, and behind it the reductions that begin no earlier than that.
class Sketch {
 public:
  explicit Sketch(const StepModel& step) : step_(step) {}

  void compute(const std::string& name, double seconds) { add(name, Bar::Kind::compute, seconds, 1); }
  /// On all ranks, or on the one that owns the weights.
  void update(double ranks = 1) { add("update", Bar::Kind::update, step_.costs.update, ranks); }
  /// Messages travel one after the other, no earlier than `from`. The rank goes on.
  void send(const std::string& name, double from, double seconds) {
    const double begin = std::max(from, link_free_);
    link_free_ = begin + seconds;
    timeline_.bars.push_back({name, Bar::Kind::communication, begin, link_free_, 1});
  }
  /// The same, and the rank waits for it.
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

  /// Forward and backward; then those reductions of `layout`, each of which may begin when its last gradient is there.
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

/// The places of the parameters in the order in which their gradients come.
std::vector<std::size_t> order_of_arrival(const std::vector<double>& arrivals) {
  std::vector<std::size_t> order = reverse_order(arrivals.size());
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(arrivals[a], a) < std::pair(arrivals[b], b); });
  return order;
}

Timeline central(const StepModel& step) {
  Sketch sketch(step);
  const double bytes = bytes_of(step.parameters);
  sketch.compute("forward", step.costs.forward);
  sketch.compute("backward", step.costs.backward);
  sketch.send_and_wait("gather gradients", root_reduce_seconds(step.link, step.ranks, bytes));
  sketch.update(1.0 / step.ranks);
  sketch.send_and_wait("send weights", tree_broadcast_seconds(step.link, step.ranks, bytes));
  return sketch.finish();
}

Timeline replicate(const StepModel& step) {
  Sketch sketch(step);
  const double bytes = bytes_of(step.parameters);
  const auto message = [&](double size) { return step.ranks > 1 ? step.link.seconds(size) : 0; };
  sketch.send_and_wait("copy model", tree_broadcast_seconds(step.link, step.ranks, bytes));
  sketch.send_and_wait("deal pictures", message(step.picture_bytes));
  sketch.compute("forward", step.costs.forward);
  sketch.send_and_wait("scores and their gradients", 2 * message(step.score_bytes));
  sketch.compute("backward", step.costs.backward);
  sketch.send_and_wait("gather gradients", root_reduce_seconds(step.link, step.ranks, bytes));
  sketch.update(1.0 / step.ranks);
  return sketch.finish();
}

}  // namespace

const std::vector<std::string>& mode_names() {
  static const std::vector<std::string> names{"single", "parameter", "buckets", "central", "replicate"};
  return names;
}

double Timeline::idle() const {
  double busy = 0;
  for (const Bar& bar : bars) {
    busy += bar.kind == Bar::Kind::communication ? 0 : bar.ranks * (bar.end - bar.begin);
  }
  return seconds > 0 ? 1 - busy / seconds : 0;
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
  if (mode == DataParallelMode::replicate) {
    return replicate(step);
  }
  Sketch sketch(step);
  if (mode == DataParallelMode::single) {
    sketch.compute("forward", step.costs.forward);
    sketch.compute("backward", step.costs.backward);
    sketch.send_and_wait("all gradients", ring_all_reduce_seconds(step.link, step.ranks, bytes_of(step.parameters)));
    sketch.update();
    return sketch.finish();
  }
  const std::vector<std::size_t> order = order_of_arrival(step.costs.arrivals);
  if (mode == DataParallelMode::parameter) {
    sketch.reduce(bucket_layout(step.parameters, order, {1, 1}), 1);
  } else {
    sketch.reduce(bucket_layout(step.parameters, order, step.caps), step.compressed);
  }
  return sketch.finish();
}

}  // namespace stagecoach
