#include "parallel/comm/link_direction.h"

#include <algorithm>

namespace stagecoach {

void LinkDirection::Numbers::add(std::int64_t number) {
  if (number != missing_) {
    beyond_.insert(number);
    return;
  }
  for (++missing_; !beyond_.empty() && *beyond_.begin() == missing_; ++missing_) {
    beyond_.erase(beyond_.begin());
  }
}

LinkDirection::Send LinkDirection::send(double bytes, double now) {
  const std::int64_t number = sends_++;
  if (bytes > kEagerBytes) {
    return {number, bytes, now};
  }
  short_free_ = std::max(now, short_free_) + link_.transfer_seconds(bytes);
  return {number, bytes, short_free_ + link_.latency};
}

double LinkDirection::match(const Send& send, const Post& post) {
  matched_sends_.add(send.number);
  matched_posts_.add(post.number);
  if (send.bytes <= kEagerBytes) {
    return send.time;
  }
  double free = long_free_;
  for (const Transfer& before : transfers_) {
    free = before.send < send.number && before.post < post.number ? std::max(free, before.through) : free;
  }
  const double through = std::max({send.time, post.time, free}) + link_.transfer_seconds(send.bytes);
  transfers_.push_back({send.number, post.number, through});
  // All later messages come after these, in both orders.
  std::erase_if(transfers_, [this](const Transfer& done) {
    const bool before_all = done.send < matched_sends_.missing() && done.post < matched_posts_.missing();
    long_free_ = before_all ? std::max(long_free_, done.through) : long_free_;
    return before_all;
  });
  return through + link_.latency;
}

}  // namespace stagecoach
