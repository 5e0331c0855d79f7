#include "parallel/comm/mpi/mpi_communicator.h"

#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/base/recycled.h"
#include "core/stream.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

enum Kind { kMessage, kCompleted, kExchange, kKinds };  // messages of different kinds are kept apart

int mpi_tag(int tag, Kind kind) { return tag * kKinds + kind; }

/// Returns MPI_DATATYPE_NULL for a type that MPI cannot sum.
MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::int32:
      return MPI_INT32_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::float16:
      return MPI_DATATYPE_NULL;
  }
  fail("mpi: unknown dtype");
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiWorld& world, MPI_Comm comm, Group group, std::shared_ptr<MpiReceives> receives,
                                 WaitMode mode, bool may_spin)
    : ExchangeCommunicator(std::move(group), mode, may_spin),
      world_(world),
      comm_(comm),
      receives_(std::move(receives)),
      exchange_(std::make_shared<Exchange>()) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  exchange_->out.resize(static_cast<std::size_t>(size()));
  exchange_->in.resize(static_cast<std::size_t>(size()));
}

MpiCommunicator::~MpiCommunicator() {
  for (const auto& sent : sent_) {
    if (world_.failed() || !world_.are_done(sent->requests)) {
      world_.leak_until_exit(sent);
    }
  }
  if (world_.failed()) {
    world_.leak_until_exit(exchange_);
  } else {
    MPI_Comm_free(&comm_);
  }
}

void MpiCommunicator::exchange(const char* operation, const Tensor& like, ExchangeBuffers& buffers) {
  synchronize({device(), Stream::kCompute});  // MPI reads what the device has made
  const ErrorContext context = [&] { return error_context(operation); };
  const MpiHeader header(operation, like);
  MpiRequests& requests = exchange_->requests;
  requests.clear();
  // Starts with the next rank, so that not all ranks send to the same rank at once.
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    const MpiAddress address{comm_, r, mpi_tag(0, kExchange)};
    const auto peer = static_cast<std::size_t>(r);
    if (buffers[peer].in.defined()) {
      exchange_->in[peer].start(address, buffers[peer].in, requests, context);
    }
    if (buffers[peer].out.defined()) {
      exchange_->out[peer].start(address, header, buffers[peer].out, MPI_Isend, requests, context);
    }
  }
  wait(requests, context);
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    const auto peer = static_cast<std::size_t>(r);
    if (buffers[peer].in.defined()) {
      require_same(operation, like, exchange_->in[peer].header(), r);
      static_cast<void>(exchange_->in[peer].end());
    }
    exchange_->out[peer].end();
  }
}

bool MpiCommunicator::sum_natively(Tensor& tensor) {
  const MPI_Datatype type = mpi_type(tensor.dtype());
  if (type == MPI_DATATYPE_NULL || tensor.numel() > std::numeric_limits<int>::max()) {
    return false;
  }
  synchronize({device(), Stream::kCompute});  // MPI reads what the device has made
  const ErrorContext context = [&] { return error_context("all_reduce"); };
  const auto sum = std::make_shared<Tensor>(tensor);
  MPI_Request request = MPI_REQUEST_NULL;
  // Non-blocking MPI_Iallreduce, so that the wait has a deadline.
  MpiWorld::check(MPI_Iallreduce(MPI_IN_PLACE, tensor.raw_mutable_data(), static_cast<int>(tensor.numel()), type,
                                 MPI_SUM, comm_, &request),
                  context);
  try {
    wait({&request, 1}, context);
  } catch (...) {
    world_.leak_until_exit(sum);  // MPI may still write there
    throw;
  }
  return true;
}

void MpiCommunicator::require_same(const char* operation, const Tensor& like, const MpiHeader& theirs, int from) const {
  const MpiHeader mine(operation, like);
  if (theirs.operation != mine.operation) {
    throw other_operation(operation, from, theirs.operation.data());
  }
  if (!theirs.is_of_same_type(mine)) {
    throw other_type(operation, like, from, theirs.type());
  }
}

void MpiCommunicator::wait(std::span<MPI_Request> requests, const ErrorContext& context) {
  if (is_virtual()) {
    world_.wait(requests, wait_policy(), context, [this] { receives_->advance(); });
  } else {
    world_.wait(requests, wait_policy(), context);
  }
}

LinkDirection& MpiCommunicator::direction(std::map<int, LinkDirection>& directions, int peer) {
  return directions.try_emplace(peer, link_to(peer)).first->second;
}

std::shared_ptr<void> MpiCommunicator::keep_moving(const Tensor& tensor) {
  return is_virtual() || bytes_of(tensor) <= kEagerBytes ? nullptr : world_.keep_moving();
}

/// Releases the memory of completed sends.
void MpiCommunicator::forget_sent() {
  while (!sent_.empty() && world_.are_done(sent_.front()->requests)) {
    sent_.front()->end();
    sent_.pop_front();
  }
}

std::shared_ptr<MpiCommunicator::Sent> MpiCommunicator::start_send(const char* operation, const Tensor& tensor, int to,
                                                                   int tag) {
  forget_sent();
  synchronize({device(), Stream::kCompute});
  const auto sent = std::allocate_shared_for_overwrite<Sent>(Recycled<Sent>());
  const LinkDirection::Send when =
      is_virtual() ? direction(directions_out_, to).send(bytes_of(tensor), clock().now()) : LinkDirection::Send{};
  const ErrorContext context = [&] { return error_context(operation, "to", to, tag); };
  // MPI_Issend, as a schedule whose sends wait for the receiver must do so also where MPI has buffers to spare.
  sent->message.start({comm_, to, mpi_tag(tag, kMessage)}, {operation, tensor, when}, tensor,
                      bytes_of(tensor) > kEagerBytes ? MPI_Issend : MPI_Isend, sent->requests, context);
  sent->moving = keep_moving(tensor);
  if (is_virtual()) {  // the receiver answers with the time of receipt
    MpiWorld::check(MPI_Irecv(&sent->completed_at, 1, MPI_DOUBLE, to, mpi_tag(tag, kCompleted), comm_,
                              &sent->requests.emplace_back(MPI_REQUEST_NULL)),
                    context);
  }
  sent_.push_back(sent);
  return sent;
}

PendingSend MpiCommunicator::send_async(const Tensor& tensor, int to, int tag) {
  require_peer("send", to, tag);
  require_here("send", tensor);
  count_message(to, bytes_of(tensor));
  const auto number = group().recorder->begin(message_event("send", to, tag, tensor.dtype(), tensor.shape()));
  trace_send(to, tag, tensor.bytes());
  const auto sent = start_send("send", tensor.detach(), to, tag);
  const auto end = [this, sent, number] {
    sent->end();
    group().recorder->end(number);
  };
  const auto wait_completed = [this, sent, to, tag, work = current_work(), end] {
    const Span span("send", "wait");
    Waiting waiting(clock());
    wait(sent->requests, [&] { return send_context(to, tag, work); });
    waiting.until(sent->completed_at);
    end();
  };
  return {wait_completed, [this, sent, end] {
            if (is_virtual()) {
              receives_->advance();
            }
            const bool is_completed = world_.are_done(sent->requests);
            if (is_completed) {
              end();
            }
            return is_completed;
          }};
}

std::shared_ptr<MpiReceives::Posted> MpiCommunicator::post(const char* operation, const Tensor& tensor, int from,
                                                           int tag) {
  const auto posted = receives_->post({comm_, from, mpi_tag(tag, kMessage)}, tensor,
                                      [&] { return error_context(operation, "from", from, tag); });
  posted->moving = keep_moving(tensor);
  if (is_virtual()) {
    receives_->expect(posted, direction(directions_in_, from), clock().now(), {comm_, from, mpi_tag(tag, kCompleted)});
  }
  return {posted.get(), [receives = receives_, posted](MpiReceives::Posted*) { receives->cancel(posted); }};
}

Tensor MpiCommunicator::wait_for(MpiReceives::Posted& posted, const ErrorContext& context) {
  const Span span("receive", "wait");
  Waiting waiting(clock());
  wait(std::span(posted.requests).first(1), context);
  if (const MpiHeader came = posted.message.header(); !came.is_of_same_type(posted.like)) {
    throw unexpected(context(), posted.like.type(), came.type());
  }
  wait(posted.requests, context);
  if (is_virtual()) {
    receives_->advance();
    waiting.until(posted.arrival);
  }
  posted.taken = true;
  posted.moving = nullptr;
  return posted.message.end();
}

PendingReceive MpiCommunicator::receive_async(const Shape& shape, DType dtype, int from, int tag) {
  require_peer("receive", from, tag);
  synchronize({device(), Stream::kCompute});  // MPI writes to memory that the device may still be using
  const auto posted = post("receive", Tensor::empty(shape, dtype, device()), from, tag);
  return PendingReceive([this, posted, shape, dtype, from, tag, work = current_work()] {
    const Recorded recorded(*group().recorder, message_event("receive", from, tag, dtype, shape));
    const Tensor tensor = wait_for(*posted, [&] { return receive_context(from, tag, work); });
    trace_use(from, tag, is_virtual() ? posted->arrival : clock().now());
    return tensor;
  });
}

void MpiCommunicator::send_number(double number, int to, int tag) {
  require_peer("send_number", to, tag);
  const Recorded recorded(*group().recorder, message_event("send_number", to, tag, DType::float64, {1}));
  start_send("send_number", Tensor::from(std::vector{number}, {1}), to, tag);
}

double MpiCommunicator::receive_number(int from, int tag) {
  require_peer("receive_number", from, tag);
  const Recorded recorded(*group().recorder, message_event("receive_number", from, tag, DType::float64, {1}));
  const auto posted = post("receive_number", Tensor::empty({1}, DType::float64), from, tag);
  return wait_for(*posted, [&] { return error_context("receive_number", "from", from, tag); }).item();
}

std::optional<double> MpiCommunicator::try_receive_number(int from, int tag) {
  require_peer("try_receive_number", from, tag);
  int has_come = 0;
  MpiWorld::check(MPI_Iprobe(from, mpi_tag(tag, kMessage), comm_, &has_come, MPI_STATUS_IGNORE),
                  [&] { return error_context("try_receive_number", "from", from, tag); });
  return has_come != 0 ? std::optional(receive_number(from, tag)) : std::nullopt;
}

std::unique_ptr<Communicator> MpiCommunicator::split(int colour, int key) {
  Group part = chosen_from(gather_choices(colour, key));
  MPI_Comm comm = MPI_COMM_NULL;
  // MPI requires colours >= 0, so the first member's world rank is the colour. All ranks are in the call by now.
  world_.guard("MPI_Comm_split", [&] { MPI_Comm_split(comm_, part.members[0], part.rank, &comm); });
  return std::make_unique<MpiCommunicator>(world_, comm, std::move(part), receives_, wait_policy().mode,
                                           wait_policy().may_spin);
}

std::unique_ptr<Communicator> MpiCommunicator::duplicate() {
  MPI_Comm comm = MPI_COMM_NULL;
  world_.guard("MPI_Comm_dup", [&] { MPI_Comm_dup(comm_, &comm); });
  constexpr bool kMaySpin = false;
  return std::make_unique<MpiCommunicator>(world_, comm, duplicated(), std::make_shared<MpiReceives>(world_),
                                           wait_policy().mode, kMaySpin);
}

}  // namespace stagecoach
