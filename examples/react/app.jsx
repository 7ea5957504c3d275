// A chat in React: the hook keeps the session, the component draws what it says.

import { StrictMode, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { LocalStorage } from 'rejoin-client';
import { useRejoin } from 'rejoin-client/react';

const server = new URLSearchParams(location.search).get('server') ?? 'ws://127.0.0.1:8181/ws';
const options = { storage: new LocalStorage('rejoin-react-example') };

function Chat() {
  const { status, events, send } = useRejoin(server, options);
  const [question, setQuestion] = useState('How are you?');
  const ask = (submitted) => {
    submitted.preventDefault();
    void send(question); // kept until the server has it
    setQuestion('');
  };
  return (
    <main>
      <h1>Rejoin in React</h1>
      <p>
        Status: <output>{status.state}</output>
      </p>
      {answersIn(events).map(([key, text]) => (
        <p key={key} className="answer">
          {text}
        </p>
      ))}
      <form onSubmit={ask}>
        <input aria-label="Question" value={question} onChange={(e) => setQuestion(e.target.value)} required />
        <button>Ask</button>
      </form>
    </main>
  );
}

/** The pieces of each answer, put together; once it is complete, the whole that the agent says in their place. */
function answersIn(events) {
  const answers = new Map();
  for (const { event, content, metadata } of events) {
    const before = answers.get(metadata.in_seq) ?? '';
    if (event === 'agent.answer_delta') answers.set(metadata.in_seq, before + content);
    if (event === 'agent.final_answer') answers.set(metadata.in_seq, content ?? before);
  }
  return [...answers];
}

createRoot(document.getElementById('root')).render(
  <StrictMode>
    <Chat />
  </StrictMode>,
);
