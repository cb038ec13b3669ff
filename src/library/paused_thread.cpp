#include "library/paused_thread.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace octet {
namespace {

struct Abandoned {};  // unwinds the body; no exception that handlers of errors take for one

enum class Turn { body, owner };

}  // namespace

struct PausedThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  Turn turn = Turn::body;
  bool is_done = false, is_abandoned = false;
  const std::function<void()>* work = nullptr;  // to do at the pause
  std::exception_ptr work_error, body_error;
  std::thread thread;

  void hand_over(std::unique_lock<std::mutex>& lock, Turn to) {
    turn = to;
    changed.notify_all();
    const Turn mine = to == Turn::body ? Turn::owner : Turn::body;
    changed.wait(lock, [&] { return turn == mine; });
  }
  void finish(std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    body_error = std::move(error);
    is_done = true;
    turn = Turn::owner;
    changed.notify_all();
  }
};

PausedThread::PausedThread(std::function<void(PausedThread&)> body)
    : state_(std::make_unique<State>()) {
  state_->thread = std::thread([this, body = std::move(body)] {
    std::exception_ptr error;
    try {
      body(*this);
    } catch (const Abandoned&) {
    } catch (...) {
      error = std::current_exception();
    }
    state_->finish(std::move(error));
  });
  wait_for_body();
  if (state_->body_error) {
    state_->thread.join();
    std::rethrow_exception(state_->body_error);
  }
}

PausedThread::~PausedThread() {
  {
    std::unique_lock lock(state_->mutex);
    state_->is_abandoned = true;
    if (!state_->is_done) state_->hand_over(lock, Turn::body);
  }
  state_->thread.join();
}

void PausedThread::wait_for_body() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->turn == Turn::owner; });
}

bool PausedThread::go_on() {
  std::unique_lock lock(state_->mutex);
  if (!state_->is_done) state_->hand_over(lock, Turn::body);
  if (state_->body_error) std::rethrow_exception(state_->body_error);
  return !state_->is_done;
}

void PausedThread::at_pause(const std::function<void()>& work) {
  std::unique_lock lock(state_->mutex);
  if (state_->body_error) std::rethrow_exception(state_->body_error);
  if (state_->is_done) return;
  state_->work = &work;
  state_->hand_over(lock, Turn::body);
  if (const std::exception_ptr error = std::exchange(state_->work_error, nullptr))
    std::rethrow_exception(error);
}

void PausedThread::pause() {
  std::unique_lock lock(state_->mutex);
  do {
    state_->hand_over(lock, Turn::owner);
    if (state_->is_abandoned) throw Abandoned{};
    if (state_->work == nullptr) return;
    try {
      (*state_->work)();
    } catch (...) {
      state_->work_error = std::current_exception();
    }
    state_->work = nullptr;
  } while (true);
}

}  // namespace octet
