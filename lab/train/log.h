// The log of a run: one JSON object a line, each written as soon as it is known.
#ifndef RMSNORM_LAB_TRAIN_LOG_H_
#define RMSNORM_LAB_TRAIN_LOG_H_

#include <fstream>
#include <string>

#include "lab/train/train.h"

namespace rmsnorm::lab {

class Log {
 public:
  // Begins the file anew, with what `before` holds: a run that was taken up has the log of one that was not.
  Log(const TrainOptions& options, const TrainResult& before);

  void write(const Step& step);
  void write(const Evaluation& evaluation);
  void end(const TrainResult& result);

 private:
  void line(const std::string& text);

  const TrainOptions& options_;
  std::string path_;
  std::ofstream out_;
};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_LOG_H_
