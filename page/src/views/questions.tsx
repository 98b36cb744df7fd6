// Every question that waits for an answer, in one place, those of one call together.
import type { JSX } from "preact";
import { route } from "../state/route";
import { questions } from "../state/store";
import { Empty } from "../ui/parts";
import { QuestionCard } from "./question-card";

export function QuestionsPage(): JSX.Element {
  const only = route.value.path[1];
  const open = questions.value.filter((question) => only === undefined || question.id === only);
  const groups = Map.groupBy(open, (question) => question.call ?? question.id);
  return (
    <div class="page">
      <h1>Questions</h1>
      {open.length === 0 && <Empty title="Nobody is asking"><p>When a server asks for input, a model's answer or a page to open, the question appears here and in its call.</p></Empty>}
      {[...groups].map(([key, list]) => <div class="question-group" key={key}>{list.map((question) => <QuestionCard key={question.id} question={question} />)}</div>)}
    </div>
  );
}
