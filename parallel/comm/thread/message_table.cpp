#include "parallel/comm/thread/message_table.h"

#include <algorithm>

#include "core/transfer.h"

namespace stagecoach {
namespace {

/// Removes and returns the oldest entry of `queue`.
template <class Entry>
std::shared_ptr<Entry> take_first(std::deque<std::shared_ptr<Entry>>& queue) {
  std::shared_ptr<Entry> first = std::move(queue.front());
  queue.pop_front();
  return first;
}

}  // namespace

MessageTable::Direction& MessageTable::direction(const Address& address, const Link& link) {
  return directions_.try_emplace({address.group, address.from, address.to}, link).first->second;
}

std::shared_ptr<MessageTable::Sent> MessageTable::send(const Address& address, const Tensor& tensor, const Event& ready,
                                                       double now, const Link& link) {
  Direction& way = direction(address, link);
  const auto sent =
      std::make_shared<Sent>(Sent{tensor, ready, way.link.send(static_cast<double>(tensor.bytes()), now)});
  Queue& queue = way.queues[address.tag];
  if (queue.posted.empty()) {
    queue.sent.push_back(sent);
  } else {
    match(way.link, *sent, *take_first(queue.posted));
  }
  return sent;
}

std::shared_ptr<MessageTable::Posted> MessageTable::post(const Address& address, const Tensor& buffer,
                                                         const Event& buffer_free, double now, const Link& link) {
  Direction& way = direction(address, link);
  const auto posted = std::make_shared<Posted>(Posted{address, way.link.post(now), buffer, buffer_free});
  Queue& queue = way.queues[address.tag];
  if (queue.sent.empty()) {
    queue.posted.push_back(posted);
  } else {
    match(way.link, *take_first(queue.sent), *posted);
  }
  return posted;
}

void MessageTable::cancel(const std::shared_ptr<Posted>& posted) {
  if (posted->matched) {
    return;
  }
  const Address& address = posted->address;
  Direction& way = directions_.at({address.group, address.from, address.to});
  std::erase(way.queues.at(address.tag).posted, posted);
  way.link.cancel(posted->post);
}

void MessageTable::match(LinkDirection& link, Sent& sent, Posted& posted) {
  posted.arrival = link.match(sent.send, posted.post);
  posted.tensor = std::move(sent.tensor);
  posted.ready = sent.ready;
  const Tensor& buffer = posted.buffer;
  if (buffer.defined() && buffer.shape() == posted.tensor.shape() && buffer.dtype() == posted.tensor.dtype()) {
    sent.copied = posted.ready = copy_async(posted.tensor, posted.buffer, sent.ready, posted.buffer_free);
    posted.tensor = buffer;
  }
  posted.matched = true;
  sent.completed = true;
  sent.completed_at = std::max(posted.arrival, posted.post.time);
}

}  // namespace stagecoach
